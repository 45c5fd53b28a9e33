ALTER TABLE svc_api_keys ADD COLUMN successor_id {text};

ALTER TABLE svc_answers ADD COLUMN caller {text} NOT NULL DEFAULT '';

CREATE INDEX svc_answers_caller ON svc_answers (caller, expires_at);
