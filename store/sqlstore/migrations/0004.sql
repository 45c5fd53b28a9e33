ALTER TABLE svc_api_keys ADD COLUMN scoping_policy_id {text} NOT NULL DEFAULT '';

ALTER TABLE svc_api_keys ADD COLUMN seal {bytes};
