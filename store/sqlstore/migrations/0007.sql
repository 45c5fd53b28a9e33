CREATE TABLE svc_audit_queue (
  seq {serial} NOT NULL PRIMARY KEY,
  events {text} NOT NULL
);

ALTER TABLE svc_audit ADD COLUMN salts {text} NOT NULL DEFAULT '';
