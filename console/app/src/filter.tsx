// What a page shows is in its address, so that a link to it can be sent and Back works.
import { useLocation } from "preact-iso";
import { useEffect, useState } from "preact/hooks";
import { local } from "./format";

/** Query is what the address says; set changes some of it, and "" removes a name. */
export interface Query {
  query: Record<string, string>;
  set(change: Record<string, string>): void;
}

export function useQuery(): Query {
  const { path, query, route } = useLocation();
  return {
    query,
    set(change) {
      const left = Object.entries({ ...query, ...change }).filter(([, value]) => value !== "");
      route(left.length > 0 ? `${path}?${new URLSearchParams(left)}` : path);
    },
  };
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
