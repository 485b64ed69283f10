// Login: with a key, or at the issuer that the node names.
import { signal } from "@preact/signals";
import { useState } from "preact/hooks";
import { Refusal, answer, api, lost } from "./api";
import { comeBack, goToIssuer, issuerHost, readConfig } from "./oidc";
import { caller, credential, farewell, keep, leave } from "./session";

const looking = signal(true);
const againMs = 2000;

/** login finds out who the caller is, if the node asks, and tries again while it does not answer. */
export async function login() {
  const used = credential.value;
  while (credential.value === used) {
    looking.value = true;
    try {
      const { keys } = await readConfig();
      if (await comeBack()) return; // with another credential
      if (!keys || used) {
        const who = await answer(api.GET("/v1/whoami"));
        if (credential.value === used) caller.value = who;
        farewell.value = "";
      }
      break;
    } catch (fault) {
      if (fault instanceof Refusal) {
        if (fault.problem.status === 401) break;
        farewell.value = fault.message;
      }
    }
    await new Promise((done) => setTimeout(done, againMs));
  }
  if (credential.value === used) looking.value = false;
}

export function Login() {
  const why = lost.value || farewell.value;
  return (
    <main class="login" aria-busy={looking.value && !why}>
      <article>
        <h1>Postdate</h1>
        {looking.value ? <Looking why={why} /> : <Ways />}
        {!looking.value && why && <p role="alert" class="fault">{why}</p>}
      </article>
    </main>
  );
}

function Looking({ why }: { why: string }) {
  if (!why) return <p>Loading …</p>;
  return (
    <>
      <p role="alert" class="fault">{why} The console tries again by itself.</p>
      {credential.value && <button class="secondary" onClick={() => leave("")}>Log out</button>}
    </>
  );
}

/** Ways are the ways to log in. */
function Ways() {
  const [key, setKey] = useState("");
  const host = issuerHost();
  return (
    <>
      {host && <button class="issuer" onClick={() => void goToIssuer()}>Log in at {host}</button>}
      {host && <p class="or">or with a key</p>}
      <form
        onSubmit={(event) => {
          event.preventDefault();
          farewell.value = "";
          keep(key.trim());
        }}
      >
        <label>
          API key
          <input type="password" name="key" autocomplete="current-password" required value={key} aria-describedby="about-key"
            pattern="\s*[!-~]+\s*" title="A key has no spaces within" onInput={(event) => setKey(event.currentTarget.value)} />
        </label>
        <small id="about-key">
          Create one with <code>postdate keys create</code>. The console shows what its scopes allow, and keeps it until
          this tab is closed.
        </small>
        <button type="submit" class={host ? "secondary" : ""}>Log in</button>
      </form>
    </>
  );
}
