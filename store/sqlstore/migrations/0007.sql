CREATE TABLE svc_audit (
  number BIGINT NOT NULL PRIMARY KEY,
  id {text} NOT NULL,
  happened_at BIGINT NOT NULL,
  actor_kind {text} NOT NULL,
  actor_id {text} NOT NULL,
  action {text} NOT NULL,
  target_kind {text} NOT NULL,
  target_id {text} NOT NULL,
  target_scope {text} NOT NULL,
  target_owner {text} NOT NULL,
  target_holder_kind {text} NOT NULL,
  target_holder_id {text} NOT NULL,
  previous {bytes},
  hash {bytes} NOT NULL
);

CREATE INDEX svc_audit_actor ON svc_audit (actor_id, number);

CREATE INDEX svc_audit_target ON svc_audit (target_id, number);

INSERT INTO svc_locks (name) VALUES ('audit');

CREATE TABLE svc_answers (
  key {bytes} NOT NULL PRIMARY KEY,
  request {bytes} NOT NULL,
  data {bytes} NOT NULL,
  expires_at BIGINT NOT NULL
);

CREATE INDEX svc_answers_expired ON svc_answers (expires_at);
