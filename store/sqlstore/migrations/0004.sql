ALTER TABLE svc_outbox ADD COLUMN tenant {text} NOT NULL DEFAULT '';

ALTER TABLE svc_audit ADD COLUMN tenant {text} NOT NULL DEFAULT '';
