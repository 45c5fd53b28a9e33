ALTER TABLE svc_users ADD COLUMN folded_id {text};

ALTER TABLE svc_users ADD COLUMN folded_name {text} NOT NULL DEFAULT '';

ALTER TABLE svc_users ADD COLUMN folded_email {text};

UPDATE svc_users SET folded_id = CASE WHEN id <> lower(id) THEN lower(id) END,
  folded_name = lower(display_name), folded_email = lower(email);

DROP INDEX svc_users_other_case;

DROP INDEX svc_users_name;

DROP INDEX svc_users_email;

CREATE INDEX svc_users_other_case ON svc_users (substr(folded_id, 1, 32), id) WHERE folded_id IS NOT NULL;

CREATE INDEX svc_users_name ON svc_users (substr(folded_name, 1, 32), id);

CREATE INDEX svc_users_email ON svc_users (substr(folded_email, 1, 32), id) WHERE folded_email IS NOT NULL;
