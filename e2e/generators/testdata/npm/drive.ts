// Does the main tasks with a client that @hey-api/openapi-ts generated. It prints one line for each.
import assert from "node:assert/strict";
import { createClient, type Client } from "./openapi/client/index.js";
import * as api from "./openapi/index.js";

const environment = (name: string) => process.env[name] ?? assert.fail(`${name} is not set`);
const as = (auth: string): Client => createClient({ baseUrl: environment("SVC_URL"), auth });
const client = as(environment("SVC_KEY"));
const url = environment("SVC_CATALOGUE"); // also takes PUT

async function templates() {
  const manifest = { version: "1", prompt: "Take notes." };
  const made = await api.createTemplate({ client, body: { id: "notes", name: "Notes", tags: ["work"], manifest } });
  assert(made.data, made.error?.detail);
  assert.deepEqual([made.data.description, made.data.source_scope], [null, null]);
  const { data: list } = await api.listTemplates({ client, query: { tag: "work", limit: 10 } });
  assert.equal(list?.templates[0]?.manifest["prompt"], "Take notes.");
  const path = { template_id: "notes" };
  const headers = { "If-Match": made.response?.headers.get("ETag") ?? assert.fail("there is no ETag") };
  const patched = await api.patchTemplate({ client, path, headers, body: { name: "Our notes", description: null } });
  assert.equal(patched.data?.name, "Our notes");
  const stale = await api.deleteTemplate({ client, path, headers });
  assert(stale.error?.code === "precondition_failed");
  assert.equal((await api.deleteTemplate({ client, path })).response?.status, 204);
}

// offer publishes one template in the catalogue.
async function offer(version: string) {
  const body = JSON.stringify({ templates: [{ id: "chat", name: "Chat", manifest: { version } }] });
  await fetch(`${url}/templates.json`, { method: "PUT", body });
}

async function sources() {
  await offer("1");
  const source = await api.registerSource({ client, body: { url } });
  assert(source.data, source.error?.detail);
  assert(!("serial" in source.data));
  const { data: list } = await api.listSources({ client, query: { view: "full" } });
  const full = list?.[0];
  assert(full && "serial" in full && full.serial === null);
  const path = { template_id: "chat" };
  const installed = await api.installTemplate({ client, path, body: { source_name: "acme" } });
  assert.deepEqual([installed.data?.source_scope, installed.data?.source_owner], ["server", null]);
  await api.patchTemplate({ client, path, body: { name: "Our chat" } });
  await offer("2");
  const { error } = await api.updateTemplate({ client, path });
  assert(error?.code === "edited_locally");
  assert.deepEqual(error.fields, ["name"]);
  const updated = await api.updateTemplate({ client, path, query: { force: true } });
  assert.deepEqual([updated.data?.updated, updated.data?.template.manifest.version], [true, "2"]);
}

async function problems() {
  const invalid = await api.createTemplate({ client, body: { id: "a/b", name: "A", manifest: { version: "1" } } });
  assert(invalid.error?.code === "invalid_request");
  assert.deepEqual(invalid.error.errors.map((e) => [e.pointer, e.parameter]), [["/id", undefined]]);
  const missing = await api.template({ client, path: { template_id: "none" } });
  assert(missing.error?.code === "not_found");
  const nobody = await api.listTemplates({ client: as("nonsense") });
  assert(nobody.error?.code === "unauthenticated");
}

async function access() {
  const user = await api.createUser({ client, body: { id: "carol" } });
  assert.deepEqual(user.data, { id: "carol", display_name: "carol", email: null, is_active: true });
  const policy = await api.createPolicy({
    client,
    body: {
      id: "desk",
      document: {
        version: "2026-03-24",
        statements: [{ effect: "allow", actions: ["bank:recall"], banks: ["support"], recall_budget: "high" }],
      },
    },
  });
  assert.equal(policy.data?.is_builtin, false);
  const attached = await api.attachPolicy({ client, body: { policy_id: "desk", principal_type: "user", principal_id: "carol" } });
  assert.equal(attached.data?.priority, 0);
  const { data: may } = await api.resolve({ client, query: { bank: "support", user_id: "carol" } });
  assert(may?.decision === "allow");
  assert.deepEqual([may.access.recall_budget, may.access.llm_model, may.bank_policy], ["high", null, null]);
  assert.deepEqual(may.trace.map((t) => [t.policy_id, t.bank_pattern, t.sets.recall_budget]), [["desk", "support", "high"]]);
  const { data: mayNot } = await api.resolve({ client, query: { bank: "support", sender: "telegram:1" } });
  assert.deepEqual([mayNot?.access.allowed, mayNot?.access.resolved_user_id, mayNot?.principal_type], [false, null, "unmapped"]);
}

async function keys() {
  const path = { user_id: "carol" };
  const issued = await api.issueUserKey({ client, path });
  assert(issued.data, issued.error?.detail);
  assert.equal(issued.data.description, null);
  const me = await api.me({ client: as(issued.data.api_key) });
  assert.deepEqual([me.data?.id, me.data?.channels], ["carol", []]);
  const { data: list } = await api.listUserKeys({ client, path, query: { view: "full" } });
  const key = list?.[0];
  assert(key && "expires_at" in key);
  assert.deepEqual([key.expires_at, key.disabled], [null, false]);
  const revoked = await api.revokeUserKey({ client, path: { ...path, key_id: key.id } });
  assert.equal(revoked.response?.status, 204);
  assert.deepEqual((await api.listUserKeys({ client, path })).data, []);
}

async function events() {
  const { data } = await api.listEvents({ client });
  const last = data?.events[0];
  assert.deepEqual([last?.action, last?.was, last?.target.holder?.id], ["api_key.revoked", null, "carol"]);
  const made = data?.events.find((e) => e.action === "access.written" && e.target.id === "carol");
  assert.deepEqual([made?.was, made?.is?.["id"], made?.target.holder], [null, "carol", null]);
}

function say(text: string) {
  console.log(text);
}

await templates();
say("a template is created, listed, patched and deleted");
await sources();
say("a conflict names the fields that were edited");
await problems();
say("problems have types");
await access();
say("a decision has its reasons");
await keys();
say("a key is issued, listed and revoked");
await events();
say("events are listed");
