CREATE TABLE svc_generation (
  id BIGINT NOT NULL PRIMARY KEY,
  value BIGINT NOT NULL
);

INSERT INTO svc_generation (id, value) VALUES (1, 0);

CREATE TABLE svc_changes (
  generation BIGINT NOT NULL,
  position BIGINT NOT NULL,
  kind {text} NOT NULL,
  id {text} NOT NULL,
  scope {text} NOT NULL,
  owner {text} NOT NULL,
  holder_kind {text} NOT NULL,
  holder_id {text} NOT NULL,
  renamed BIGINT NOT NULL DEFAULT 0,
  PRIMARY KEY (generation, position)
);

CREATE TABLE svc_locks (
  name {text} NOT NULL PRIMARY KEY
);

INSERT INTO svc_locks (name) VALUES ('access'), ('outbox'), ('installations'), ('audit');

CREATE TABLE svc_sources (
  scope {text} NOT NULL,
  owner {text} NOT NULL,
  name {text} NOT NULL,
  url {text} NOT NULL,
  description {text},
  sealed_token {bytes},
  signing_key {bytes},
  serial BIGINT NOT NULL DEFAULT 0,
  created_at BIGINT NOT NULL,
  updated_at BIGINT NOT NULL,
  PRIMARY KEY (scope, owner, name)
);

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

CREATE TABLE svc_templates (
  scope {text} NOT NULL,
  owner {text} NOT NULL,
  id {text} NOT NULL,
  name {text} NOT NULL,
  description {text},
  category {text},
  integrations {text} NOT NULL,
  tags {text} NOT NULL,
  source_scope {text},
  source_owner {text},
  source_name {text},
  source_id {text},
  source_revision {text},
  source_url {text},
  installed_at BIGINT NOT NULL,
  updated_at BIGINT NOT NULL,
  version BIGINT NOT NULL DEFAULT 1,
  manifest {text} NOT NULL,
  PRIMARY KEY (scope, owner, id)
);

CREATE INDEX svc_templates_name ON svc_templates (scope, owner, name, id);

CREATE INDEX svc_templates_category ON svc_templates (scope, owner, category, name, id);

CREATE INDEX svc_templates_installed ON svc_templates
  (scope, owner, id{wide:, source_scope, source_owner, source_name, source_id, source_revision, source_url}) WHERE source_name IS NOT NULL;

CREATE INDEX svc_templates_source ON svc_templates (source_scope, source_owner, source_name) WHERE source_name IS NOT NULL;

CREATE TABLE svc_template_tags (
  scope {text} NOT NULL,
  owner {text} NOT NULL,
  tag {text} NOT NULL,
  category {text},
  name {text} NOT NULL,
  id {text} NOT NULL,
  PRIMARY KEY (scope, owner, tag, name, id),
  FOREIGN KEY (scope, owner, id) REFERENCES svc_templates (scope, owner, id) ON DELETE CASCADE
);

CREATE INDEX svc_template_tags_category ON svc_template_tags (scope, owner, category, tag, name, id);

CREATE INDEX svc_template_tags_template ON svc_template_tags (scope, owner, id);

CREATE TABLE svc_template_bases (
  scope {text} NOT NULL,
  owner {text} NOT NULL,
  id {text} NOT NULL,
  name {text} NOT NULL,
  description {text},
  category {text},
  integrations {text} NOT NULL,
  tags {text} NOT NULL,
  manifest {text} NOT NULL,
  PRIMARY KEY (scope, owner, id),
  FOREIGN KEY (scope, owner, id) REFERENCES svc_templates (scope, owner, id) ON DELETE CASCADE
);

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

CREATE TABLE svc_api_keys (
  id {text} NOT NULL PRIMARY KEY,
  holder_kind {text} NOT NULL,
  holder_id {text} NOT NULL,
  prefix {text} NOT NULL,
  description {text},
  hash {bytes},
  pepper {text} NOT NULL,
  seal {bytes},
  scoping_policy_id {text} NOT NULL DEFAULT '',
  disabled BIGINT NOT NULL DEFAULT 0,
  created_at BIGINT NOT NULL,
  expires_at BIGINT,
  revoked_at BIGINT,
  last_used_at BIGINT,
  last_use BIGINT GENERATED ALWAYS AS (COALESCE(last_used_at, created_at)) STORED
);

CREATE INDEX svc_api_keys_holder ON svc_api_keys (holder_kind, holder_id, created_at, id) WHERE revoked_at IS NULL;

CREATE INDEX svc_api_keys_created ON svc_api_keys (created_at, id) WHERE revoked_at IS NULL AND id <> '';

CREATE INDEX svc_api_keys_scoping ON svc_api_keys (scoping_policy_id, created_at, id) WHERE revoked_at IS NULL AND scoping_policy_id <> '';

CREATE INDEX svc_api_keys_expiry ON svc_api_keys (expires_at, id) WHERE revoked_at IS NULL AND id <> '' AND expires_at IS NOT NULL;

CREATE INDEX svc_api_keys_last_use ON svc_api_keys (last_use, id) WHERE revoked_at IS NULL AND id <> '';

CREATE TABLE svc_key_holders (
  kind {text} NOT NULL,
  id {text} NOT NULL,
  PRIMARY KEY (kind, id)
);

CREATE TABLE svc_kept_values (
  name {text} NOT NULL PRIMARY KEY,
  value {bytes}
);

CREATE TABLE svc_users (
  id {text} NOT NULL PRIMARY KEY,
  display_name {text} NOT NULL,
  email {text},
  inactive BIGINT NOT NULL
);

CREATE INDEX svc_users_other_case ON svc_users (lower(substr(id, 1, 32)), id) WHERE id <> lower(id);

CREATE INDEX svc_users_name ON svc_users (lower(substr(display_name, 1, 32)), id);

CREATE INDEX svc_users_email ON svc_users (lower(substr(email, 1, 32)), id) WHERE email IS NOT NULL;

CREATE TABLE svc_channels (
  provider {text} NOT NULL,
  sender_id {text} NOT NULL,
  user_id {text} NOT NULL REFERENCES svc_users (id) ON DELETE CASCADE,
  PRIMARY KEY (provider, sender_id)
);

CREATE INDEX svc_channels_user ON svc_channels (user_id, provider, sender_id);

CREATE TABLE svc_access_groups (
  id {text} NOT NULL PRIMARY KEY,
  display_name {text} NOT NULL
);

CREATE TABLE svc_group_members (
  group_id {text} NOT NULL REFERENCES svc_access_groups (id) ON DELETE CASCADE,
  user_id {text} NOT NULL REFERENCES svc_users (id) ON DELETE CASCADE,
  PRIMARY KEY (group_id, user_id)
);

CREATE INDEX svc_group_members_user ON svc_group_members (user_id, group_id);

CREATE TABLE svc_service_accounts (
  id {text} NOT NULL PRIMARY KEY,
  display_name {text} NOT NULL,
  owner_user_id {text} NOT NULL,
  scoping_policy_id {text} NOT NULL,
  inactive BIGINT NOT NULL
);

CREATE INDEX svc_service_accounts_owner ON svc_service_accounts (owner_user_id, id);

CREATE INDEX svc_service_accounts_scoping ON svc_service_accounts (scoping_policy_id, id);

CREATE TABLE svc_policies (
  id {text} NOT NULL PRIMARY KEY,
  display_name {text} NOT NULL,
  document {text} NOT NULL
);

CREATE TABLE svc_attachments (
  principal_type {text} NOT NULL,
  principal_id {text} NOT NULL,
  policy_id {text} NOT NULL REFERENCES svc_policies (id),
  priority BIGINT NOT NULL,
  PRIMARY KEY (principal_type, principal_id, policy_id)
);

CREATE INDEX svc_attachments_policy ON svc_attachments (policy_id, principal_type, principal_id);

CREATE TABLE svc_bank_policies (
  bank_id {text} NOT NULL PRIMARY KEY,
  document {text} NOT NULL
);

CREATE TABLE svc_outbox (
  id {text} NOT NULL PRIMARY KEY,
  happened_at BIGINT NOT NULL,
  actor_kind {text} NOT NULL,
  actor_id {text} NOT NULL,
  actor_key {text} NOT NULL,
  action {text} NOT NULL,
  target_kind {text} NOT NULL,
  target_id {text} NOT NULL,
  target_scope {text} NOT NULL,
  target_owner {text} NOT NULL,
  target_holder_kind {text} NOT NULL,
  target_holder_id {text} NOT NULL,
  claimed_until BIGINT NOT NULL,
  row_was {text} NOT NULL,
  row_is {text} NOT NULL
);

CREATE TABLE svc_audit (
  number BIGINT NOT NULL PRIMARY KEY,
  id {text} NOT NULL,
  happened_at BIGINT NOT NULL,
  actor_kind {text} NOT NULL,
  actor_id {text} NOT NULL,
  actor_key {text} NOT NULL,
  action {text} NOT NULL,
  target_kind {text} NOT NULL,
  target_id {text} NOT NULL,
  target_scope {text} NOT NULL,
  target_owner {text} NOT NULL,
  target_holder_kind {text} NOT NULL,
  target_holder_id {text} NOT NULL,
  previous {bytes},
  hash {bytes} NOT NULL,
  earliest BIGINT NOT NULL,
  latest BIGINT NOT NULL,
  row_was {text} NOT NULL DEFAULT '',
  row_is {text} NOT NULL DEFAULT ''
);

CREATE INDEX svc_audit_actor ON svc_audit (actor_id, number);

CREATE INDEX svc_audit_target ON svc_audit (target_id, number);

CREATE INDEX svc_audit_spans ON svc_audit (number, earliest, latest) WHERE number % 2048 = 0;

CREATE TABLE svc_answers (
  key {bytes} NOT NULL PRIMARY KEY,
  request {bytes} NOT NULL,
  data {bytes} NOT NULL,
  expires_at BIGINT NOT NULL
);

CREATE INDEX svc_answers_expired ON svc_answers (expires_at);
