// Tenants and keys: what tenants may use and do use, and who may call the API for them.
import { useMemo, useState } from "preact/hooks";
import { type Schemas, answer, api } from "../api";
import { useQuery } from "../filter";
import { bytes, count, distance } from "../format";
import { Ask, Badge, Copy, Dialog, Outcome, Page, type Said, Time } from "../parts";
import { useLive } from "../poll";
import { actFor, caller, tenant } from "../session";
import { type Column, Table } from "../table";
import { TenantName } from "../who";

type Tenant = Schemas["Tenant"];
type Key = Schemas["Key"];

/** Open is the dialog that is open. */
type Open = { limitsOf: Tenant | undefined } | { making: true } | { made: Schemas["NewKey"] } | { revoking: Key };

const everyMs = 4000;

export function Tenants() {
  const { asked, keyId } = caller.value!;
  const by = useQuery();
  const filter = by.query.tenant ?? "";
  const [open, setOpen] = useState<Open>();
  const [said, setSaid] = useState<Said>();
  const tenants = useLive((signal) => answer(api.GET("/v1/tenants", { signal })), everyMs);
  const keys = useLive((signal) => (asked ? answer(api.GET("/v1/keys", { signal })) : Promise.resolve({ keys: [] })), asked ? everyMs : 0);
  const close = () => setOpen(undefined);
  const done = (words: string, next?: Open) => {
    setSaid({ words, bad: false });
    setOpen(next);
    tenants.again();
    keys.again();
  };
  const names = tenants.value?.tenants.map((t) => t.tenant) ?? [];
  return (
    <Page title="Tenants and keys" fault={tenants.fault ?? keys.fault}
      about="What each tenant may use and uses, on all nodes together, and the keys with which programs and people call the API.">
      <div class="row">
        <label>
          Tenant contains{" "}
          <input type="search" value={filter} placeholder="part of a name" maxLength={64}
            onInput={(event) => by.set({ tenant: event.currentTarget.value }, true)} />
        </label>
      </div>
      <p class="act"><Outcome said={said} /></p>
      {tenants.value && <TenantTable tenants={tenants.value.tenants} keys={keys.value?.keys ?? []} filter={filter} onLimits={(of) => setOpen({ limitsOf: of })} />}
      {!asked && <p class="empty">This node asks nobody for a key, so its only tenant is default. Start it with --admin-key to have keys and tenants.</p>}
      {asked && keys.value && (
        <KeyTable keys={keys.value.keys} own={keyId} filter={filter} onMake={() => setOpen({ making: true })} onRevoke={(key) => setOpen({ revoking: key })} />
      )}
      {open && "limitsOf" in open && <Limits of={open.limitsOf} onClose={close} onDone={done} />}
      {open && "making" in open && <Make tenants={names} onClose={close} onFault={keys.again} onMade={(key) => done(`Key ${key.id} of tenant ${key.tenant} is created.`, { made: key })} />}
      {open && "made" in open && <Made made={open.made} onClose={close} />}
      {open && "revoking" in open && <Revoke of={open.revoking} own={keyId} onClose={close} onDone={done} />}
    </Page>
  );
}

interface Limit { field: "requestsPerSecond" | "messagesPerSecond" | "pendingMax" | "bytesMax" | "channelsMax" | "weight"; name: string; about: string; fraction?: boolean }

const limits: Limit[] = [
  { field: "requestsPerSecond", name: "Requests per second", about: "On all nodes together", fraction: true },
  { field: "messagesPerSecond", name: "Messages per second", about: "Messages that are scheduled, replaced or moved", fraction: true },
  { field: "pendingMax", name: "Pending messages", about: "Messages that are not settled yet" },
  { field: "bytesMax", name: "Pending bytes", about: "Bytes of their payloads" },
  { field: "channelsMax", name: "Channels", about: "Channels that they go to" },
  { field: "weight", name: "Weight", about: "Its share of delivery while more is due than goes out: 1 to 1000" },
];

/** Use shows what is used of a limit, and whether the limit is this tenant's own. */
function Use(props: { of: Tenant; field: Limit["field"]; used?: number; write?(n: number): string }) {
  const { write = count } = props;
  const limit = props.of[props.field];
  const most = limit === 0 && props.field !== "weight" ? "no limit" : write(limit);
  const full = props.used !== undefined && limit > 0 && props.used >= 0.9 * limit;
  const own = props.of.set.includes(props.field);
  return (
    <>
      {props.used !== undefined && <span class={full ? "bad" : ""}>{write(props.used)}</span>}
      {props.used === undefined ? most : <small> {limit === 0 ? most : `of ${most}`}</small>}
      {own && <small class="own"> set</small>}
    </>
  );
}

interface TenantTableProps { tenants: Tenant[]; keys: Key[]; filter: string; onLimits(of: Tenant | undefined): void }

function TenantTable({ tenants, keys, filter, onLimits }: TenantTableProps) {
  const asked = caller.value!.asked;
  const own = caller.value!.tenant;
  const columns = useMemo<Column<Tenant>[]>(() => {
    const keysOf = new Map<string, number>();
    for (const key of keys) keysOf.set(key.tenant, (keysOf.get(key.tenant) ?? 0) + 1);
    return [
      { name: "Tenant", value: (t) => t.tenant },
      { name: "Pending", number: true, value: (t) => t.pending, cell: (t) => <Use of={t} field="pendingMax" used={t.pending} /> },
      { name: "Payload", number: true, value: (t) => t.bytes, cell: (t) => <Use of={t} field="bytesMax" used={t.bytes} write={bytes} /> },
      { name: "Channels", number: true, value: (t) => t.channels, cell: (t) => <Use of={t} field="channelsMax" used={t.channels} /> },
      { name: "Requests/s", number: true, value: (t) => t.requestsPerSecond, cell: (t) => <Use of={t} field="requestsPerSecond" write={String} /> },
      { name: "Messages/s", number: true, value: (t) => t.messagesPerSecond, cell: (t) => <Use of={t} field="messagesPerSecond" write={String} /> },
      { name: "Weight", number: true, value: (t) => t.weight, cell: (t) => <Use of={t} field="weight" /> },
      ...(asked ? [{ name: "Keys", number: true, value: (t: Tenant) => keysOf.get(t.tenant) ?? 0 }] : []),
      {
        name: "Actions",
        value: () => "",
        cell: (t) => (
          <>
            <button class="small secondary" aria-label={`Change limits of ${t.tenant}`} onClick={() => onLimits(t)}>Change limits</button>{" "}
            {asked && t.tenant !== (tenant.value || own) && (
              <button class="small secondary" aria-label={`Act for ${t.tenant}`} onClick={() => actFor(t.tenant === own ? "" : t.tenant)}>Act for</button>
            )}
          </>
        ),
      },
    ];
  }, [keys, asked, own, tenant.value]);
  const rows = useMemo(() => matching(tenants, filter), [tenants, filter]);
  return (
    <section class="block">
      <header>
        <h2>Tenants</h2>
        <small>Limits that are <span class="own">set</span> are the tenant's own; others are the defaults of the nodes.</small>
        <button class="small" onClick={() => onLimits(undefined)}>Set limits of another tenant</button>
      </header>
      <Table label="Tenants" columns={columns} rows={rows} id={(t) => t.tenant} sortable
        empty={filter ? "No tenant has this in its name." : "No tenant has limits, pending messages or keys yet."} />
    </section>
  );
}

function matching<T extends { tenant: string }>(rows: T[], filter: string): T[] {
  const part = filter.toLowerCase();
  return rows.filter((row) => row.tenant.toLowerCase().includes(part));
}

interface Choice { how: "default" | "none" | "own"; most: string }

function choiceOf(t: Tenant | undefined, field: Limit["field"]): Choice {
  if (!t?.set.includes(field)) return { how: "default", most: "" };
  return t[field] === 0 ? { how: "none", most: "" } : { how: "own", most: String(t[field]) };
}

const asSent = ({ how, most }: Choice) => (how === "default" ? null : how === "none" ? 0 : Number(most));

/** Limits changes the limits of a tenant; of undefined: of one whose name is asked for. */
function Limits(props: { of: Tenant | undefined; onClose(): void; onDone(words: string): void }) {
  const [before] = useState(() => limits.map(({ field }) => choiceOf(props.of, field)));
  const [now, setNow] = useState(before);
  const [name, setName] = useState(props.of?.tenant ?? "");
  const change = (i: number, to: Partial<Choice>) => setNow(now.map((choice, j) => (i === j ? { ...choice, ...to } : choice)));
  const run = async () => {
    const changed = limits.flatMap(({ field }, i) => (asSent(now[i]!) !== asSent(before[i]!) ? [[field, asSent(now[i]!)]] : []));
    if (changed.length === 0) throw new Error("No limit is changed yet.");
    await answer(api.PATCH("/v1/tenants/{tenant}", { params: { path: { tenant: name } }, body: Object.fromEntries(changed) }));
    props.onDone(`The limits of tenant ${name} are changed. All nodes hold to them within two seconds.`);
  };
  return (
    <Ask title={props.of ? `Limits of tenant ${name}` : "Limits of another tenant"} yes="Change the limits" onClose={props.onClose} run={run}>
      {!props.of && <TenantName value={name} onInput={setName} />}
      <div class="limits">
        {limits.map((limit, i) => (
          <LimitField key={limit.field} limit={limit} choice={now[i]!} onChange={(to) => change(i, to)}
            fallback={props.of && !props.of.set.includes(limit.field) ? props.of[limit.field] : undefined} />
        ))}
      </div>
    </Ask>
  );
}

/** LimitField chooses one limit. fallback is the nodes' default, if that is known. */
function LimitField(props: { limit: Limit; choice: Choice; fallback: number | undefined; onChange(to: Partial<Choice>): void }) {
  const { limit, choice, fallback } = props;
  const isWeight = limit.field === "weight";
  const known = fallback === undefined ? "" : fallback === 0 ? " (no limit)" : ` (${count(fallback)})`;
  return (
    <div class="limit">
      <label>
        {limit.name}
        <select value={choice.how} onChange={(event) => props.onChange({ how: event.currentTarget.value as Choice["how"] })}>
          <option value="default">Default{known}</option>
          {!isWeight && <option value="none">No limit</option>}
          <option value="own">{isWeight ? "This weight:" : "At most:"}</option>
        </select>
      </label>
      {choice.how === "own" && (
        <input type="number" required aria-label={`${limit.name} of this tenant`} min={isWeight ? 1 : 0} max={isWeight ? 1000 : undefined}
          step={limit.fraction ? "any" : 1} value={choice.most} onInput={(event) => props.onChange({ most: event.currentTarget.value })} />
      )}
      <small>{limit.about}</small>
    </div>
  );
}

function KeyTable(props: { keys: Key[]; own: string | undefined; filter: string; onMake(): void; onRevoke(key: Key): void }) {
  const { keys, own, filter } = props;
  const columns = useMemo<Column<Key>[]>(
    () => [
      { name: "Key", value: (k) => k.id, cell: (k) => <><code>{k.id}</code>{k.id === own && <small> (mine)</small>}</> },
      { name: "Tenant", value: (k) => k.tenant },
      { name: "Scopes", value: (k) => k.scopes.join(", ") },
      { name: "Channels", value: (k) => k.channels.join(", ") || "all", cell: (k) => <div class="clip" title={k.channels.join("\n")}>{k.channels.join(", ") || "all"}</div> },
      { name: "Expires", value: (k) => k.expiresAt ?? "~", cell: (k) => <Expiry at={k.expiresAt} /> },
      { name: "Last used", value: (k) => k.lastUsedAt ?? "", cell: (k) => (k.lastUsedAt ? <time dateTime={k.lastUsedAt} title={k.lastUsedAt}>{distance(k.lastUsedAt)}</time> : "never") },
      {
        name: "Actions",
        value: () => "",
        cell: (k) => <button class="small secondary" aria-label={`Revoke key ${k.id}`} onClick={() => props.onRevoke(k)}>Revoke</button>,
      },
      { name: "Created", value: (k) => k.createdAt, cell: (k) => <Time at={k.createdAt} /> },
    ],
    [own],
  );
  const rows = useMemo(() => matching(keys, filter), [keys, filter]);
  return (
    <section class="block">
      <header>
        <h2>Keys</h2>
        <button class="small" onClick={props.onMake}>Create a key</button>
      </header>
      <Table label="Keys" columns={columns} rows={rows} id={(k) => k.id} sortable
        empty={filter ? "No key is of a tenant with this in its name." : "There are no keys but the operator's own. Create one for each program and person."} />
    </section>
  );
}

function Expiry({ at }: { at: string | undefined }) {
  if (!at) return <>never</>;
  return Date.parse(at) > Date.now() ? <Time at={at} /> : <><Time at={at} /> <Badge state="expired" /></>;
}

const scopes: { name: Schemas["Scope"]; about: string }[] = [
  { name: "sched:r", about: "see messages, read inboxes, receive from them and acknowledge, watch jobs" },
  { name: "sched:w", about: "schedule, change, cancel, redrive and purge messages" },
  { name: "channels:w", about: "pause, resume and limit channels, and set their failure channels" },
  { name: "ops:r", about: "see the figures, the cluster and the channels" },
  { name: "admin", about: "all of this, and the keys and limits of all tenants" },
];

const lifetimes = { "30d": "After 30 days", "90d": "After 90 days", "365d": "After a year", "": "Never, until it is revoked", other: "After …" };

function Make(props: { tenants: string[]; onClose(): void; onFault(): void; onMade(made: Schemas["NewKey"]): void }) {
  const [name, setName] = useState(tenant.value || caller.value!.tenant);
  const [chosen, setChosen] = useState<Schemas["Scope"][]>([]);
  const [channels, setChannels] = useState("");
  const [lifetime, setLifetime] = useState("90d");
  const [other, setOther] = useState("");
  const run = async () => {
    const patterns = channels.split("\n").map((line) => line.trim()).filter(Boolean);
    const expires = lifetime === "other" ? other.trim() : lifetime;
    const body: Schemas["KeyWish"] = { tenant: name, scopes: chosen };
    if (patterns.length > 0) body.channels = patterns;
    if (expires) body.expires = expires;
    try {
      props.onMade(await answer(api.POST("/v1/keys", { body })));
    } catch (fault) {
      props.onFault(); // it may be there
      throw fault;
    }
  };
  return (
    <Ask title="Create a key" yes="Create the key" onClose={props.onClose} run={run}>
      <TenantName value={name} onInput={setName} known={props.tenants} />
      <fieldset>
        <legend>Scopes: whoever has the key may …</legend>
        {scopes.map(({ name: scope, about }) => (
          <label key={scope}>
            <input type="checkbox" checked={chosen.includes(scope)}
              onChange={(event) => setChosen(event.currentTarget.checked ? [...chosen, scope] : chosen.filter((s) => s !== scope))} />
            <code>{scope}</code> {about}
          </label>
        ))}
      </fieldset>
      <label>
        Channels that it may use
        <textarea rows={2} value={channels} placeholder="all" spellcheck={false} aria-describedby="about-channels"
          onInput={(event) => setChannels(event.currentTarget.value)} />
      </label>
      <small id="about-channels">One pattern a line, like <code>rabbitmq:acme-*</code>. None: all channels.</small>
      <label>
        Expires
        <select value={lifetime} onChange={(event) => setLifetime(event.currentTarget.value)}>
          {Object.entries(lifetimes).map(([value, words]) => <option key={value} value={value}>{words}</option>)}
        </select>
      </label>
      {lifetime === "other" && (
        <input required aria-label="Expires after" placeholder="like 12h or 7d" value={other} onInput={(event) => setOther(event.currentTarget.value)} />
      )}
    </Ask>
  );
}

/** Made shows the text of a new key, which is nowhere else. */
function Made({ made, onClose }: { made: Schemas["NewKey"]; onClose(): void }) {
  return (
    <Dialog title="This is the key" onClose={onClose}>
      <p><strong>It is shown only now.</strong> Nobody can read it again: keep it as you keep a password. If it is lost, revoke key {made.id} and create another one.</p>
      <label>
        Key of tenant {made.tenant}
        <input class="secret" readOnly value={made.key} onFocus={(event) => event.currentTarget.select()} />
      </label>
      <footer>
        <Copy text={made.key}>Copy the key</Copy>
        <button class="secondary" onClick={onClose}>I have kept it</button>
      </footer>
    </Dialog>
  );
}

function Revoke(props: { of: Key; own: string | undefined; onClose(): void; onDone(words: string): void }) {
  const { id, tenant: whose, lastUsedAt } = props.of;
  const run = async () => {
    await answer(api.DELETE("/v1/keys/{id}", { params: { path: { id } } }));
    props.onDone(`Key ${id} is revoked. All nodes refuse it within a second.`);
  };
  return (
    <Ask title={`Revoke key ${id}?`} yes="Revoke the key" danger onClose={props.onClose} run={run}>
      <p>
        It is a key of tenant {whose}, and was {lastUsedAt ? `last used ${distance(lastUsedAt)}` : "never used"}. Whoever uses it is
        refused from now on, and this cannot be undone.
      </p>
      {id === props.own && <p class="fault">You are logged in with it: you will have to log in with another one.</p>}
    </Ask>
  );
}
