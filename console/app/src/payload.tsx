// The payload of a message: as JSON, as text or byte by byte.
import { useId, useMemo, useState } from "preact/hooks";
import { bytes as size, count, visible } from "./format";
import { Copy } from "./parts";

const token = /"[^"\\]*(?:\\.[^"\\]*)*"|[{}[\],:]|[^\s"{}[\],:]+/g;

/** member returns the text of a member of a JSON object as it stands, with its numbers as they were written. */
export function member(object: string, name: string): string {
  let depth = 0;
  let from = -1;
  let last = "";
  for (const { 0: part, index } of object.matchAll(token)) {
    if (depth === 1 && (part === "," || part === "}") && from >= 0) return object.slice(from, index).trim();
    if (part === "{" || part === "[") depth++;
    if (part === "}" || part === "]") depth--;
    if (depth === 1 && part === ":" && from < 0 && last === JSON.stringify(name)) from = index + 1;
    last = part;
  }
  return "";
}

// Each level of JSON is set further in: without a bound, 30 KB of brackets would be written as hundreds of MB.
const levelsMax = 64;

/** isFlat reports whether a JSON text has no more levels than are shown. */
function isFlat(json: string): boolean {
  let depth = 0;
  for (const [part] of json.matchAll(token)) {
    if (part === "{" || part === "[") depth++;
    if (part === "}" || part === "]") depth--;
    if (depth > levelsMax) return false;
  }
  return true;
}

/** indented sets each member of a JSON text on a line. It moves the parts of the text, and changes none. */
export function indented(json: string): string {
  const out: string[] = [];
  let depth = 0;
  let last = "";
  for (const [part] of json.matchAll(token)) {
    const opened = last === "{" || last === "[";
    const closes = part === "}" || part === "]";
    if (closes) depth--;
    if (last === "," || opened !== closes) out.push("\n", "  ".repeat(depth));
    if (part === "{" || part === "[") depth++;
    out.push(part === ":" ? ": " : part);
    last = part;
  }
  return out.join("");
}

/** hex writes bytes 16 a line: where they are, what they are, and as ASCII. */
export function hex(bytes: Uint8Array): string {
  const lines: string[] = [];
  for (let at = 0; at < bytes.length; at += 16) {
    const row = [...bytes.subarray(at, at + 16)];
    const codes = row.map((b) => b.toString(16).padStart(2, "0")).join(" ");
    const ascii = row.map((b) => (b > 0x20 && b < 0x7f ? String.fromCharCode(b) : ".")).join("");
    lines.push(`${at.toString(16).padStart(6, "0")}  ${codes.padEnd(47)}  ${ascii}`);
  }
  return lines.join("\n");
}

type View = "JSON" | "Text" | "Hex";

interface Read {
  /** bytes are what the consumer gets. */
  bytes: Uint8Array<ArrayBuffer>;
  /** text is them as UTF-8, if they are that. */
  text?: string;
  /** isJSON: it is JSON, and of few enough levels to be shown so. */
  isJSON: boolean;
}

function isJSONType(contentType: string): boolean {
  const type = contentType.split(";")[0]!.trim().toLowerCase();
  return type === "application/json" || type === "text/json" || type.endsWith("+json");
}

/** isShownAsJSON reports whether a text is JSON that is shown as such. */
function isShownAsJSON(text: string): boolean {
  try {
    return JSON.parse(text) !== undefined && isFlat(text);
  } catch {
    return false;
  }
}

function read({ raw, contentType, encoding }: Props): Read {
  if (encoding === "base64") {
    const bytes = Uint8Array.from(atob(JSON.parse(raw)), (char) => char.charCodeAt(0));
    try {
      const text = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true }).decode(bytes);
      return { bytes, text, isJSON: isShownAsJSON(text) };
    } catch {
      return { bytes, isJSON: false };
    }
  }
  // A string is delivered as it stands, unless the payload is JSON.
  const text = !isJSONType(contentType) && raw.startsWith('"') ? (JSON.parse(raw) as string) : raw;
  return { bytes: new TextEncoder().encode(text), text, isJSON: isShownAsJSON(text) };
}

interface Props {
  /** raw is the JSON text that the API has in the member payload. */
  raw: string;
  contentType: string;
  encoding?: "base64";
  /** file is what a download is called. */
  file: string;
}

// A browser takes seconds to lay out 256 KiB of one line, or of characters that are written as code points.
const shownMax = 1 << 15;

export function Payload(props: Props) {
  const { raw, contentType, encoding, file } = props;
  const name = useId();
  const payload = useMemo(() => read(props), [raw, contentType, encoding]);
  const views: View[] = ["Hex"];
  if (payload.text !== undefined) views.unshift("Text");
  if (payload.isJSON) views.unshift("JSON");
  const [chosen, choose] = useState<View>();
  const [parts, setParts] = useState(1);
  const first = views[0] === "JSON" && !isJSONType(contentType) ? "Text" : views[0]!;
  const view = chosen && views.includes(chosen) ? chosen : first;
  const written = useMemo(() => {
    if (view === "JSON") return indented(payload.text!);
    return view === "Text" ? payload.text! : hex(payload.bytes);
  }, [payload, view]);
  const shown = useMemo(() => visible(written), [written]);
  const end = parts * shownMax;
  return (
    <section class="card" aria-label="Payload">
      <div class="row level">
        <h2>Payload</h2>
        <small>{size(payload.bytes.length)}, <code>{visible(contentType)}</code></small>
        <fieldset class="tabs">
          <legend class="hidden">Show the payload as</legend>
          {views.map((v) => (
            <label key={v}>
              <input type="radio" name={name} checked={v === view} onChange={() => choose(v)} />
              {v}
            </label>
          ))}
        </fieldset>
        <Copy text={written}>Copy the payload</Copy>
        <button class="outline secondary" onClick={() => download(payload.bytes, file)}>Download</button>
      </div>
      <pre class={view === "Hex" ? "payload hex" : "payload"} tabIndex={0} role="region" aria-label={`Payload as ${view}`}>{shown.slice(0, end)}</pre>
      {end < shown.length && (
        <p class="row level">
          <small>The first {count(end)} of {count(shown.length)} characters. A copy or a download has all.</small>
          <button class="outline secondary" onClick={() => setParts(parts + 1)}>Show more of the payload</button>
        </p>
      )}
    </section>
  );
}

function download(bytes: Uint8Array<ArrayBuffer>, file: string) {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(new Blob([bytes], { type: "application/octet-stream" }));
  link.download = file.replace(/[^-A-Za-z0-9_.]/g, "_");
  link.click();
  URL.revokeObjectURL(link.href);
}
