ALTER TABLE svc_sources ADD COLUMN signing_key {bytes};

ALTER TABLE svc_sources ADD COLUMN serial BIGINT NOT NULL DEFAULT 0;

ALTER TABLE svc_templates ADD COLUMN source_url {text};

UPDATE svc_templates SET source_url = (SELECT s.url FROM svc_sources s WHERE s.scope = svc_templates.source_scope
  AND s.owner = svc_templates.source_owner AND s.name = svc_templates.source_name);

CREATE INDEX svc_templates_installed ON svc_templates
  (scope, owner, id{wide:, source_scope, source_owner, source_name, source_id, source_revision, source_url}) WHERE source_name IS NOT NULL;

CREATE INDEX svc_templates_source ON svc_templates (source_scope, source_owner, source_name) WHERE source_name IS NOT NULL;

INSERT INTO svc_locks (name) VALUES ('installations');

CREATE TABLE svc_source_files (
  scope {text} NOT NULL,
  owner {text} NOT NULL,
  name {text} NOT NULL,
  path {text} NOT NULL,
  data {bytes},
  kept_at BIGINT NOT NULL,
  PRIMARY KEY (scope, owner, name, path),
  FOREIGN KEY (scope, owner, name) REFERENCES svc_sources (scope, owner, name) ON DELETE CASCADE
);

CREATE INDEX svc_source_files_kept ON svc_source_files (scope, owner, name, kept_at, path) WHERE path <> '';
