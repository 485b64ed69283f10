// Login: with a key, or at the identity provider that the node names.
import { signal } from "@preact/signals";
import { useState } from "preact/hooks";
import { Refusal, lost } from "./api";
import { caller, credential, farewell, keep } from "./session";

const looking = signal(true);

/** login asks the API who the caller is. Without a credential that says whether one is needed. */
export async function login() {
  looking.value = true;
  try {
    caller.value = { asked: false, scopes: [] }; // until GET /v1/whoami is there
    farewell.value = "";
  } catch (fault) {
    if (!(fault instanceof Refusal)) farewell.value = (fault as Error).message;
    else if (!credential.value && fault.problem.status === 401) farewell.value = "";
  }
  looking.value = false;
}

export function Login() {
  const [key, setKey] = useState("");
  if (looking.value && !farewell.value) return <main class="login" aria-busy="true">Looking who is there …</main>;
  return (
    <main class="login">
      <article>
        <h1>Postdate</h1>
        <form
          onSubmit={(event) => {
            event.preventDefault();
            keep(key.trim());
            void login();
          }}
        >
          <label>
            API key
            <input type="password" name="key" autocomplete="current-password" required value={key}
              onInput={(event) => setKey(event.currentTarget.value)} aria-describedby="about-key" />
          </label>
          <small id="about-key">
            Make one with <code>postdate keys create</code>. The console shows what its scopes allow, and keeps it until
            this tab is closed.
          </small>
          <button type="submit">Log in</button>
        </form>
        {(farewell.value || lost.value) && <p role="alert" class="fault">{farewell.value || lost.value}</p>}
      </article>
    </main>
  );
}
