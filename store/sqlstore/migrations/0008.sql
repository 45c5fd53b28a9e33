DROP TABLE svc_changes;

CREATE TABLE svc_changefeed (
  seq {serial} NOT NULL PRIMARY KEY,
  lane BIGINT NOT NULL,
  number BIGINT NOT NULL,
  changed {text} NOT NULL
);

CREATE UNIQUE INDEX svc_changefeed_lane ON svc_changefeed (lane, number);

INSERT INTO svc_generation WITH RECURSIVE lane(id) AS (SELECT 2 UNION ALL SELECT id + 1 FROM lane WHERE id < {lanes}) SELECT id, 0 FROM lane WHERE id <= {lanes};
