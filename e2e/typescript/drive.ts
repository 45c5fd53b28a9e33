// Runs the main tasks through a client whose types are generated from the document. It prints one
// line for each step that succeeds.
import assert from "node:assert/strict";
import createClient from "openapi-fetch";
import type { components, paths } from "./svc.js";

type FullAPIKey = components["schemas"]["FullAPIKey"];
type RegisterSource = components["schemas"]["RegisterSource"];
type Template = components["schemas"]["Template"];
type Manifest = components["schemas"]["Manifest"];

const environment = (name: string) => process.env[name] ?? assert.fail(`${name} is not set`);
const baseUrl = environment("SVC_URL");
const catalogue = environment("SVC_CATALOGUE"); // also takes PUT

const as = (bearer: string) => createClient<paths>({ baseUrl, headers: { Authorization: `Bearer ${bearer}` } });
const admin = as(environment("SVC_KEY"));

// offer publishes one template in the catalogue.
async function offer(manifest: Manifest) {
  const templates = [{ id: "chat", name: "Chat", description: "Talks", tags: ["t"], manifest }];
  const put = await fetch(`${catalogue}/templates.json`, { method: "PUT", body: JSON.stringify({ templates }) });
  assert.equal(put.status, 204);
}

async function registers() {
  await offer({ version: "1", prompt: "Talk." });
  const body: RegisterSource = { url: catalogue, description: "Ours" };
  const { data, error, response } = await admin.POST("/admin/template-sources", { body });
  assert(data, error?.detail);
  assert.equal(response.status, 201);
  assert.deepEqual([data.name, data.scope, data.has_auth, data.owner], ["acme", "server", false, null]);
}

async function lists() {
  const { data, error } = await admin.GET("/admin/template-sources/{name}/templates", { params: { path: { name: "acme" } } });
  assert(data, error?.detail);
  assert.deepEqual([data.stale, data.bad], [false, []]);
  assert.deepEqual(data.templates.map((t) => [t.id, t.category, t.installed_as, t.behind]), [["chat", null, [], null]]);
}

async function installs() {
  const { data, error, response } = await admin.POST("/admin/templates/{template_id}/install", {
    params: { path: { template_id: "chat" } },
    body: { source_name: "acme", source_scope: "server", alias_id: "our chat" },
  });
  assert(data, error?.detail);
  const manifest: Manifest = data.manifest;
  assert.deepEqual(manifest, { version: "1", prompt: "Talk." });
  assert.deepEqual([data.id, data.source_name, data.description], ["our chat", "acme", "Talks"]);
  return tagOf(response);
}

function tagOf(response: Response): string {
  return response.headers.get("ETag") ?? assert.fail("there is no ETag");
}

const path = { template_id: "our chat" };

async function patches() {
  const { data, error } = await admin.PATCH("/admin/templates/{template_id}", {
    params: { path }, body: { description: null, tags: ["a", "b"] },
  });
  assert(data, error?.detail);
  assert.deepEqual([data.name, data.description, data.tags], ["Chat", null, ["a", "b"]]);
}

// matches sends If-Match: first the entity tag from before the patch, then the present one.
async function matches(stale: string) {
  const refused = await admin.PATCH("/admin/templates/{template_id}", {
    params: { path, header: { "If-Match": stale } }, body: { name: "Stale" },
  });
  assert.equal(refused.response.status, 412);
  assert(refused.error?.code === "precondition_failed");
  const read = await admin.GET("/admin/templates/{template_id}", { params: { path } });
  assert.equal(read.data?.name, "Chat");
  const taken = await admin.PATCH("/admin/templates/{template_id}", {
    params: { path, header: { "If-Match": tagOf(read.response) } }, body: { name: "Fresh" },
  });
  assert.equal(taken.data?.name, "Fresh");
}

async function checks() {
  const before = await admin.GET("/admin/templates/{template_id}/check-update", { params: { path } });
  assert.equal(before.data?.has_update, false);
  await offer({ version: "2", prompt: "Talk more." });
  const after = await admin.GET("/admin/templates/{template_id}/check-update", { params: { path } });
  assert.equal(after.data?.has_update, true);
  const { data: report, error } = await admin.POST("/admin/templates/check-updates");
  assert(report, error?.detail);
  assert.equal(report.checked, 1);
  for (const each of report.templates) {
    assert(each.has_update); // in this case the type has a revision
    assert.deepEqual([each.template_id, each.latest_revision.slice(0, 7)], ["our chat", "sha256:"]);
  }
  assert.equal(report.templates.length, 1);
}

type Failure = NonNullable<Awaited<ReturnType<typeof update>>["error"]>;

const update = (force?: boolean) => admin.POST("/admin/templates/{template_id}/update", { params: { path, query: { force } } });

// reason switches on the code of a failed update. The types require every code that the document
// has for an update.
function reason(failure: Failure): string {
  switch (failure.code) {
    case "edited_locally":
      return `edited: ${failure.fields.join(", ")}`;
    case "invalid_request":
      return `invalid: ${failure.errors.map((e) => e.pointer ?? e.parameter).join(", ")}`;
    case "unauthenticated": case "forbidden": case "cross_origin": case "read_only": case "not_found": case "changed_meanwhile": case "source_moved":
    case "precondition_failed": case "body_too_large": case "unsupported_media_type": case "rate_limited": case "internal":
    case "source_failed": case "unavailable": case "source_timeout":
      return failure.code;
    default:
      return failure satisfies never;
  }
}

async function readsProblems() {
  const edited = await update();
  assert.equal(edited.response.status, 409);
  assert.equal(edited.response.headers.get("Content-Type"), "application/problem+json");
  assert(edited.error);
  assert.equal(reason(edited.error), "edited: name, description, tags");
  const { error } = await admin.POST("/admin/template-sources", { body: { url: catalogue, alias: "a/b" } });
  assert(error?.code === "invalid_request");
  assert.deepEqual(error.errors.map((e) => e.pointer), ["/alias"]);
  const gone = await admin.DELETE("/admin/templates/{template_id}", { params: { path: { template_id: "none" } } });
  assert(gone.error?.code === "not_found");
}

async function updates() {
  const { data, error } = await update(true);
  assert(data, error && reason(error));
  assert.deepEqual([data.updated, data.template.name, data.template.manifest.version], [true, "Chat", "2"]);
}

async function keys() {
  const request = { params: { header: { "Idempotency-Key": "laptop-1" } }, body: { description: "laptop" } };
  const { data, error, response } = await admin.POST("/me/api-keys", request);
  assert(data, error?.detail);
  assert.equal(response.status, 201);
  assert.deepEqual((await admin.POST("/me/api-keys", request)).data, data);
  const other = await admin.POST("/me/api-keys", { ...request, body: {} });
  assert(other.error?.code === "idempotency_key_reused");
  step("a key is issued, once");
  const user = as(data.api_key);
  const used = await user.GET("/me/api-keys", { params: { query: { view: "full" } } });
  const listed = (used.data as FullAPIKey[] | undefined)?.find((key) => key.id === data.id);
  assert(listed && !("api_key" in listed));
  assert.deepEqual([listed.description, listed.expires_at, listed.disabled], ["laptop", null, false]);
  step("and used");
  const revoked = await admin.DELETE("/me/api-keys/{key_id}", { params: { path: { key_id: data.id } } });
  assert.equal(revoked.response.status, 204);
  const refused = await user.GET("/me/api-keys");
  assert.equal(refused.response.status, 401);
  assert(refused.error?.code === "unauthenticated");
  assert.equal(refused.response.headers.get("WWW-Authenticate"), 'Bearer realm="svc", error="invalid_token"');
  step("and refused once it is revoked");
}

async function decides() {
  const query = { action: "template:admin", bank: "*" };
  const { data, error } = await admin.POST("/decide", { body: { queries: [query, { ...query, user_id: "nobody" }] } });
  assert(data, error?.detail);
  assert.deepEqual(data.decisions.map((d) => [d.allowed, d.decision]), [[true, "allow"], [false, "implicit_deny"]]);
  const mine = await admin.GET("/me/resolve", { params: { query } });
  assert.deepEqual(mine.data?.access, data.decisions[0]?.access);
  const can = await admin.GET("/me/what-can");
  assert(can.data?.capabilities.some((c) => c.decision === "allow" && c.bank === "*" && !c.parameters.llm_model));
}

// pages follows Link until an answer has none.
async function pages() {
  const made = ["page 1", "page 2", "page 3", "page 4"];
  for (const id of made) {
    const { error } = await admin.POST("/admin/templates", { body: { id, name: id, manifest: { version: "1" }, tags: ["paged"] } });
    assert(!error, error?.detail);
  }
  const seen: Template["id"][][] = [];
  for (let cursor: string | undefined, more = true; more;) {
    const { data, response } = await admin.GET("/admin/templates", { params: { query: { tag: "paged", limit: 2, cursor } } });
    assert(data);
    seen.push(data.templates.map((t) => t.id));
    const next = /^<([^>]+)>; rel="next"$/.exec(response.headers.get("Link") ?? "")?.[1];
    more = next !== undefined;
    cursor = next && (new URL(next, response.url).searchParams.get("cursor") ?? assert.fail("a Link without a cursor"));
    assert(seen.length <= made.length, "the pages have no end");
  }
  assert.deepEqual(seen, [made.slice(0, 2), made.slice(2)]);
}

function step(said: string) {
  console.log(said);
}

await registers();
step("a source is registered");
await lists();
step("what it offers is listed");
const tag = await installs();
step("a template is installed");
await patches();
step("and patched, null clears");
await matches(tag);
step("If-Match is heeded");
await checks();
step("an update is noticed");
await readsProblems();
step("problems are told by their codes");
await updates();
step("the update is forced");
await keys();
await decides();
step("access is decided");
await pages();
step("a list is read by pages");
