ALTER TABLE svc_api_keys ADD COLUMN expires_at BIGINT;

ALTER TABLE svc_api_keys ADD COLUMN disabled BIGINT NOT NULL DEFAULT 0;

ALTER TABLE svc_api_keys ADD COLUMN last_used_at BIGINT;
