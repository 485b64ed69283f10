// Who is logged in, and for which tenant they act.
import { useRef, useState } from "preact/hooks";
import { answer, api } from "./api";
import { Ask, Fault, Time } from "./parts";
import { type Caller, actFor, tenant } from "./session";

/** Who says what the credential is for. */
export function Who({ caller: c }: { caller: Caller }) {
  const name = c.subject ?? (c.keyId === "admin-key" ? "The operator's key" : `Key ${c.keyId}`);
  return (
    <details class="who" open={matchMedia("(min-width: 48rem)").matches}>
      <summary>{name}</summary>
      <dl>
        <dt>Tenant</dt>
        <dd>{c.tenant}</dd>
        <dt>Scopes</dt>
        <dd>{c.scopes.join(", ") || "none"}</dd>
        <dt>Channels</dt>
        <dd>{c.channels.join(", ") || "all"}</dd>
        <dt>Expires</dt>
        <dd>{c.expiresAt ? <Time at={c.expiresAt} far /> : "never"}</dd>
      </dl>
    </details>
  );
}

const other = " "; // no tenant has this name
const readAgainMs = 2000;

/** ActFor chooses the tenant whose messages, inboxes and channels an administrator sees and changes. */
export function ActFor({ own }: { own: string }) {
  const [known, setKnown] = useState<string[]>([]);
  const [asking, setAsking] = useState(false);
  const [fault, setFault] = useState<Error>();
  const readAt = useRef(-Infinity);
  const read = async () => {
    if (performance.now() < readAt.current + readAgainMs) return;
    readAt.current = performance.now();
    try {
      const { tenants } = await answer(api.GET("/v1/tenants"));
      setKnown(tenants.map((t) => t.tenant));
      setFault(undefined);
    } catch (failed) {
      setFault(failed as Error);
    }
  };
  const names = [...new Set([...known, ...(tenant.value ? [tenant.value] : [])])].filter((name) => name !== own).sort();
  return (
    <>
      <label>
        Act for tenant
        <select value={tenant.value} onFocus={() => void read()} onPointerEnter={() => void read()}
          onChange={(event) => {
            const chosen = event.currentTarget.value;
            event.currentTarget.value = tenant.value;
            if (chosen === other) setAsking(true);
            else actFor(chosen);
          }}
        >
          <option value="">{own} (my own)</option>
          {names.map((name) => <option key={name} value={name}>{name}</option>)}
          <option value={other}>Another …</option>
        </select>
      </label>
      <Fault of={fault} />
      {asking && <AskTenant onClose={() => setAsking(false)} />}
    </>
  );
}

function AskTenant({ onClose }: { onClose(): void }) {
  const [name, setName] = useState("");
  return (
    <Ask title="Act for another tenant" yes="Act for it" onClose={onClose}
      run={async () => {
        actFor(name);
        onClose();
      }}
    >
      <TenantName value={name} onInput={setName} />
    </Ask>
  );
}

/** TenantName is a field for the name of a tenant. */
export function TenantName(props: { value: string; onInput(name: string): void; known?: string[] }) {
  return (
    <label>
      Tenant
      <input required value={props.value} maxLength={64} pattern="[A-Za-z0-9._:~@+=,\-]+" autocomplete="off" spellcheck={false}
        title="1 to 64 of the characters A-Z a-z 0-9 . _ : ~ @ + = , -" list={props.known && "known-tenants"}
        onInput={(event) => props.onInput(event.currentTarget.value)} />
      {props.known && <datalist id="known-tenants">{props.known.map((name) => <option key={name} value={name} />)}</datalist>}
    </label>
  );
}
