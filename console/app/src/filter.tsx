// What a page shows is in its address, so that a link to it can be sent and Back works.
import { useLocation } from "preact-iso";
import { useEffect, useId, useMemo, useState } from "preact/hooks";
import { answer, api } from "./api";
import { local } from "./format";
import { useLive } from "./poll";
import { may, tenant } from "./session";

/** link is the address of a page, with a query. What is "" is left out of it. */
export function link(page: string, query: Record<string, string>): string {
  const said = Object.entries(query).filter(([, value]) => value !== "");
  return said.length > 0 ? `/console/${page}?${new URLSearchParams(said)}` : `/console/${page}`;
}

export const messageLink = (id: string) => link("message", { id });
export const seriesLink = (id: string) => link("series", { id });

/** Query is what the address of the page says. */
export interface Query {
  query: Record<string, string>;
  /** link is the address with some of it changed; "" removes a name. */
  link(change: Record<string, string>): string;
  /** set goes to that address. replace: Back does not lead to the one before. */
  set(change: Record<string, string>, replace?: boolean): void;
}

export function useQuery(): Query {
  const { path, query, route } = useLocation();
  const changed = (change: Record<string, string>) => link(path.replace("/console/", ""), { ...query, ...change });
  return { query, link: changed, set: (change, replace) => route(changed(change), replace) };
}

interface FieldProps {
  label: string;
  /** name is the one in the address. */
  name: string;
  by: Query;
  placeholder?: string;
  /** offers are values to choose from; others can be typed. */
  offers?: string[];
  onFocus?(): void;
}

/** Field is a field of a filter. What is typed counts on Enter, or when the field is left. */
export function Field({ label, name, by, placeholder, offers, onFocus }: FieldProps) {
  const [text, setText] = useText(by.query[name] ?? "");
  const list = useId();
  return (
    <label>
      {label}{" "}
      <input type="search" name={name} value={text} placeholder={placeholder} spellcheck={false} list={offers && list} onFocus={onFocus}
        onInput={(event) => setText(event.currentTarget.value)} onChange={(event) => by.set({ [name]: event.currentTarget.value.trim() })} />
      {offers && <datalist id={list}>{offers.map((value) => <option key={value} value={value} />)}</datalist>}
    </label>
  );
}

const offersMax = 500;

/** useSeen gathers what the rows of a page had since it was opened, as there is no list of it all. */
function useSeen(now: Iterable<string>): Set<string> {
  const seen = useMemo(() => new Set<string>(), [tenant.value]);
  for (const value of now) if (value && seen.size < offersMax) seen.add(value);
  return seen;
}

interface SeenProps {
  by: Query;
  /** seen are the values that the rows on the page have. */
  seen: Iterable<string>;
}

/** LabelField is a field for a whole label. It offers those that were seen. */
export function LabelField({ by, seen }: SeenProps) {
  const labels = useSeen(seen);
  return <Field label="Label" name="label" placeholder="the exact label" by={by} offers={[...labels].sort()} />;
}

/** ChannelField is a field for a whole channel. It offers those that were seen, and those in hand if the caller may see them. */
export function ChannelField({ by, seen }: SeenProps) {
  const channels = useSeen(seen);
  const [used, use] = useState(false);
  const inHand = useLive(async (signal) => {
    if (!used || !may("ops:r")) return [];
    return (await answer(api.GET("/v1/channels", { params: { query: { limit: offersMax } }, signal }))).channels;
  }, 0, [used, tenant.value]).value ?? [];
  const offers = new Set([...channels, ...inHand.map((c) => c.channel)]);
  return <Field label="Channel" name="channel" placeholder="the exact channel" by={by} offers={[...offers].sort()} onFocus={() => use(true)} />;
}

/** TimeField is a field for a time, in the browser's time zone; the address has it as the API writes it. */
export function TimeField({ label, name, by }: FieldProps) {
  const at = new Date(by.query[name] ?? "");
  const [text, setText] = useText(isNaN(+at) ? "" : local(+at).replace(" ", "T"));
  return (
    <label>
      {label}
      <input type="datetime-local" step={1} name={name} value={text} onInput={(event) => setText(event.currentTarget.value)}
        onChange={({ currentTarget: { value } }) => by.set({ [name]: value && new Date(value).toISOString() })} />
    </label>
  );
}

// What is typed stays when the page is drawn again, and gives way to a new address.
function useText(given: string) {
  const [text, setText] = useState(given);
  useEffect(() => setText(given), [given]);
  return [text, setText] as const;
}
