ALTER TABLE svc_templates ADD COLUMN edited BIGINT NOT NULL DEFAULT 0;

UPDATE svc_templates SET edited = 1 WHERE EXISTS (
  SELECT 1 FROM svc_template_bases b
  WHERE b.scope = svc_templates.scope AND b.owner = svc_templates.owner AND b.id = svc_templates.id
  AND (b.name <> svc_templates.name
    OR b.description IS DISTINCT FROM svc_templates.description
    OR b.category IS DISTINCT FROM svc_templates.category
    OR b.integrations <> svc_templates.integrations OR b.tags <> svc_templates.tags
    OR b.manifest <> svc_templates.manifest)
);
