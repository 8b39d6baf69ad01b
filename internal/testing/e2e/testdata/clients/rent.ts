// Rents a cluster with the client that openapi-typescript makes from the platform's document, and prints what happened.
import createClient from "openapi-fetch";
import type { paths } from "./schema.js";

declare const process: { argv: string[] }; // of Node
const [server, token, image] = process.argv.slice(2);
const muster = createClient<paths>({ baseUrl: server, headers: { Authorization: `Bearer ${token}` } });

const offers = (await muster.GET("/api/v1/offers", { params: { query: { q: "gpus_total>=1", limit: 10 } } })).data!;
if (offers.items.length < 2) throw new Error(`${offers.items.length} offers`);
const spec = { image, name: "typescript", nodes: 2, gpus_per_node: 1, command: ["sleep", "3600"], disk_gb: 1 };
const quote = (await muster.POST("/api/v1/quotes", { body: spec })).data!;
const rented = await muster.POST("/api/v1/clusters", {
  body: { quote_id: quote.id },
  params: { header: { "Idempotency-Key": "typescript-1" } },
});
if (rented.error) throw new Error(`${rented.error.code}: ${rented.error.detail}`);
const path = { id: rented.data.id };
for (;;) {
  const { data } = await muster.GET("/api/v1/clusters/{id}", { params: { path } });
  if (data!.state === "running") break;
  if (data!.state === "failed" || data!.state === "released") throw new Error(`${data!.state}: ${data!.detail}`);
  await new Promise((done) => setTimeout(done, 100));
}
const usage = (await muster.GET("/api/v1/clusters/{id}/usage", { params: { path } })).data!;
await muster.DELETE("/api/v1/clusters/{id}", { params: { path } });
const refused = await muster.POST("/api/v1/quotes", { body: { image, nodes: 128, gpus_per_node: 8 } });
console.log(JSON.stringify({ id: path.id, price: quote.price_per_second, seconds: usage.billable_seconds, code: refused.error?.code }));
