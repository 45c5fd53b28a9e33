ALTER TABLE svc_audit ADD COLUMN actor_key {text} NOT NULL DEFAULT '';

ALTER TABLE svc_outbox ADD COLUMN actor_key {text} NOT NULL DEFAULT '';
