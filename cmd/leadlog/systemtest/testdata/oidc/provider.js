// An OpenID Connect provider, npm's oidc-provider, with a person for each case. It prints its address, and then reads that of the
// service from a line of its input. Its own pages ask for a name and any password, for consent, and whether to sign out.
import { createServer } from "node:http";
import { once } from "node:events";
import { createInterface } from "node:readline";
import Provider from "oidc-provider";

const people = {
  olga: { account_id: "acme", roles: ["owners"] },
  sam: { account_id: "acme", roles: ["sales"] },
  nora: { account_id: "acme", roles: ["guests"] },
  eve: { account_id: "elsewhere", roles: ["owners"] },
};

const server = createServer().listen(0, "127.0.0.1");
await once(server, "listening");
const issuer = `http://127.0.0.1:${server.address().port}`;
console.log(issuer);
for await (const service of createInterface({ input: process.stdin })) {
  const provider = new Provider(issuer, {
    clients: [{
      client_id: "crm",
      client_secret: "a secret of the client",
      redirect_uris: [`${service}/console/sign-in/callback`],
      post_logout_redirect_uris: [`${service}/console/sign-in`],
    }],
    claims: { openid: ["sub", "account_id", "roles"] },
    conformIdTokenClaims: false, // they are in the ID token
    findAccount: (_, name) => people[name] && { accountId: name, claims: () => ({ sub: name, ...people[name] }) },
    pkce: { required: () => true },
  });
  server.on("request", provider.callback());
  console.log("ready");
}
process.exit(); // whoever started it has ended
