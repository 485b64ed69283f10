// Numbers and times as people read them.

const whole = new Intl.NumberFormat("en");
const short = new Intl.NumberFormat("en", { maximumSignificantDigits: 3 });
const compact = new Intl.NumberFormat("en", { notation: "compact", maximumFractionDigits: 1 });
const bytesUnits = ["bytes", "KiB", "MiB", "GiB", "TiB"];

/** count writes 1234567 as 1,234,567. */
export const count = (n: number) => whole.format(n);

/** brief writes 1234567 as 1.2M. */
export const brief = (n: number) => compact.format(n);

/** rate writes a number per second. */
export const rate = (n: number) => (n >= 100 ? whole.format(Math.round(n)) : short.format(n));

/** ms writes milliseconds as 4.2 ms, 1.5 s, 3 min, 2 h or 5 days. */
export function ms(n: number): string {
  const steps: [number, string][] = [[86_400_000, "days"], [3_600_000, "h"], [60_000, "min"], [1000, "s"]];
  for (const [length, unit] of steps) {
    if (Math.abs(n) >= length * (unit === "days" ? 2 : 1)) return `${short.format(n / length)} ${unit}`;
  }
  return `${short.format(n)} ms`;
}

/** length writes milliseconds in words: 30 seconds, 5 minutes, 1 day. */
export function length(n: number): string {
  const units: [number, string][] = [[86_400_000, "day"], [3_600_000, "hour"], [60_000, "minute"], [1000, "second"]];
  const [size, unit] = units.find(([size]) => n >= size && n % size === 0) ?? [1000, "second"];
  return `${short.format(n / size)} ${unit}${n === size ? "" : "s"}`;
}

/** bytes writes 1536 as 1.5 KiB. */
export function bytes(n: number): string {
  let unit = 0;
  for (; n >= 1024 && unit < bytesUnits.length - 1; unit++) n /= 1024;
  return n === 1 && unit === 0 ? "1 byte" : `${short.format(n)} ${bytesUnits[unit]}`;
}

const clock = new Intl.DateTimeFormat("sv", { dateStyle: "short", timeStyle: "medium" });

/** local writes a time of the API in the browser's time zone: 2027-01-31 09:30:00. */
export const local = (time: string | number) => clock.format(new Date(time));

/** zone names the browser's time zone. */
export const zone = Intl.DateTimeFormat().resolvedOptions().timeZone;

/** distance says how far a time is from now: in 3 min, 2 h ago. */
export function distance(time: string | number, now = Date.now()): string {
  const away = new Date(time).getTime() - now;
  return away >= 0 ? `in ${ms(away)}` : `${ms(-away)} ago`;
}

const unseen = /[^\P{Cc}\t\n]|[\p{Cf}\p{Cs}\p{Zl}\p{Zp}\p{Default_Ignorable_Code_Point}]/gu;

/** visible writes characters that nobody sees, or that turn the order of others round, as their code points: ⟨U+202E⟩. */
export const visible = (text: string) =>
  text.replace(unseen, (char) => `⟨U+${char.codePointAt(0)!.toString(16).toUpperCase().padStart(4, "0")}⟩`);

/** duration writes a duration of the API, such as PT1H30M, as 1 h 30 min. */
export const duration = (iso: string) =>
  iso.replace(/^PT/, "").replace(/([\d.]+)([HMS])/g, (_, n, unit) => `${n} ${{ H: "h", M: "min", S: "s" }[unit as "H"]} `).trim();

/**
 * inZone writes a time as the clocks of a time zone show it, with the day of the week: Sun 2027-03-28 03:00:00 GMT+2; as
 * the API does if the browser does not know the zone.
 */
export function inZone(time: string, timeZone: string): string {
  const at = new Date(time);
  try {
    const day = new Intl.DateTimeFormat("en", { weekday: "short", timeZone }).format(at);
    const clock = new Intl.DateTimeFormat("sv", { dateStyle: "short", timeStyle: "medium", timeZone }).format(at);
    const parts = new Intl.DateTimeFormat("en", { timeZoneName: "shortOffset", timeZone }).formatToParts(at);
    return `${day} ${clock} ${parts.find((p) => p.type === "timeZoneName")!.value}`;
  } catch {
    return time;
  }
}
