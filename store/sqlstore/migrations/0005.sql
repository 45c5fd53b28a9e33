ALTER TABLE svc_templates ADD COLUMN version BIGINT NOT NULL DEFAULT 1;

CREATE TABLE svc_template_versions (
  scope {text} NOT NULL,
  owner {text} NOT NULL,
  id {text} NOT NULL,
  version BIGINT NOT NULL,
  name {text} NOT NULL,
  description {text},
  category {text},
  integrations {text} NOT NULL,
  tags {text} NOT NULL,
  manifest {text} NOT NULL,
  source_revision {text},
  updated_at BIGINT NOT NULL,
  PRIMARY KEY (scope, owner, id, version),
  FOREIGN KEY (scope, owner, id) REFERENCES svc_templates (scope, owner, id) ON DELETE CASCADE
);
