CREATE TABLE svc_changes (
  generation BIGINT NOT NULL,
  position BIGINT NOT NULL,
  kind {text} NOT NULL,
  id {text} NOT NULL,
  scope {text} NOT NULL,
  owner {text} NOT NULL,
  holder_kind {text} NOT NULL,
  holder_id {text} NOT NULL,
  PRIMARY KEY (generation, position)
);

CREATE TABLE svc_outbox (
  id {text} NOT NULL PRIMARY KEY,
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
  claimed_until BIGINT NOT NULL
);

INSERT INTO svc_locks (name) VALUES ('outbox');
