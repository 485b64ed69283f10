// What a page shows is in its address, so that a link to it can be sent and Back works.
import { useLocation } from "preact-iso";
import { useEffect, useState } from "preact/hooks";
import { local } from "./format";

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
}

/** Field is a field of a filter. What is typed counts on Enter, or when the field is left. */
export function Field({ label, name, by, placeholder }: FieldProps) {
  const [text, setText] = useText(by.query[name] ?? "");
  return (
    <label>
      {label}
      <input type="search" name={name} value={text} placeholder={placeholder} spellcheck={false}
        onInput={(event) => setText(event.currentTarget.value)} onChange={(event) => by.set({ [name]: event.currentTarget.value.trim() })} />
    </label>
  );
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
