// Reads {secret, deliveries: [{headers, body}]} and holds each delivery against the standard's own library: it has to
// verify as it is, and not with another byte in its body.
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { Webhook, WebhookVerificationError } from "standardwebhooks";

const { secret, deliveries } = JSON.parse(readFileSync(0, "utf8"));
const webhook = new Webhook(secret);
for (const { headers, body } of deliveries) {
  assert.deepEqual(webhook.verify(body, headers), JSON.parse(body));
  assert.throws(() => webhook.verify(body + " ", headers), WebhookVerificationError);
}
console.log(`verified ${deliveries.length}`);
