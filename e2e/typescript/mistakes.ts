// Each line that ends with the number of an error has a mistake that the generated types catch.
// No other line has one. This program never runs.
import createClient from "openapi-fetch";
import type { components, paths } from "./svc.js";

type InstallTemplate = components["schemas"]["InstallTemplate"];
type RegisterSource = components["schemas"]["RegisterSource"];

const client = createClient<paths>({ baseUrl: "http://127.0.0.1" });
const path = { template_id: "notes" };

// Requests.
await client.GET("/admin/template", {}); // TS2345: no such path
await client.PATCH("/admin/templates", {}); // TS2345: a method that the path does not take
await client.GET("/admin/templates/{template_id}"); // TS2554: nothing for the path
await client.GET("/admin/templates/{template_id}", { params: { path: { id: "notes" } } }); // TS2353: misspelled parameter
await client.GET("/admin/templates", { params: { query: { limits: 2 } } }); // TS2561: misspelled parameter of the query
await client.GET("/me/api-keys", { params: { query: { view: "whole" } } }); // TS2322: not of the enumeration
await client.POST("/admin/templates/{template_id}/install", { params: { path } }); // TS2345: no body
await client.POST("/admin/template-sources", { body: { alias: "acme" } }); // TS2322: a missing field
({ url: "https://example.com", aliass: "acme" }) satisfies RegisterSource; // TS2561: misspelled field, which the client alone lets through
({ alias: "acme" }) satisfies RegisterSource; // TS1360: a missing field
({ source_name: "acme", source_scope: "team" }) satisfies InstallTemplate; // TS2322: not of the enumeration
await client.POST("/admin/templates", { body: { id: "a", name: "a", manifest: {} } }); // TS2322: a manifest without a version
await client.PATCH("/admin/templates/{template_id}", { params: { path }, body: { name: null } }); // TS2322: null where it clears nothing
await client.PATCH("/me/api-keys/{key_id}", { params: { path: { key_id: "k" } }, body: { disabled: "yes" } }); // TS2322: another type

// Answers.
const { data, error } = await client.GET("/admin/templates/{template_id}", { params: { path } });
data.name.length; // TS18048: the request may have failed
data?.description.length; // TS18047: it may be null
data?.title; // TS2339: no such field
if (error?.code === "precondition_failed") console.log(); // TS2367: this request cannot fail so
if (error?.code === "not_found") console.log(error.errors); // TS2339: only an invalid request has a list of errors
const { data: keys } = await client.GET("/me/api-keys");
keys?.[0]?.api_key; // TS2339: a list shows no key
if (data?.scope === "everybody") console.log(); // TS2367: not of the enumeration
