CREATE TABLE svc_access_tests (
  id {text} NOT NULL PRIMARY KEY,
  user_id {text} NOT NULL,
  sa_id {text} NOT NULL,
  sender {text} NOT NULL,
  action {text} NOT NULL,
  bank_id {text} NOT NULL,
  channel {text} NOT NULL,
  topic {text} NOT NULL,
  allowed BIGINT NOT NULL
);
