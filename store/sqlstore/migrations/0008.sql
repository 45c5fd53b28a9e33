CREATE TABLE svc_key_holders (
  kind {text} NOT NULL,
  id {text} NOT NULL,
  PRIMARY KEY (kind, id)
);
