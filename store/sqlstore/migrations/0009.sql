ALTER TABLE svc_audit ADD COLUMN latest BIGINT NOT NULL DEFAULT 0;

UPDATE svc_audit SET latest = so_far.latest
  FROM (SELECT number, MAX(happened_at) OVER (ORDER BY number) AS latest FROM svc_audit) so_far
  WHERE so_far.number = svc_audit.number;

CREATE INDEX svc_audit_latest ON svc_audit (latest, number);
