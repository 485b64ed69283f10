// The rule of a series in plain words.
import type { Schemas } from "./api";
import { duration, local } from "./format";

type Recurrence = Schemas["Recurrence"];

/** brief is a rule in a line: its interval, or its cron fields as they were written and their time zone. */
export const brief = (r: Recurrence) => (r.every ? `every ${duration(r.every)}` : `${r.cron} ${r.timezone}`);

const named: Record<string, string> = {
  "@hourly": "at the beginning of each hour",
  "@daily": "each day at 00:00",
  "@midnight": "each day at 00:00",
  "@weekly": "each Sunday at 00:00",
  "@monthly": "on the first of each month at 00:00",
  "@yearly": "on 1 January at 00:00",
  "@annually": "on 1 January at 00:00",
};
const fields = ["second", "minute", "hour", "day of month", "month", "day of week"];

/** cronWords names the fields of a cron rule that say something, and what they say. */
function cronWords(cron: string): string {
  const name = named[cron.trim().toLowerCase()];
  if (name) return name;
  const said = cron.trim().split(/\s+/);
  const names = said.length === 6 ? fields : fields.slice(1);
  const given = names.map((field, i) => ({ field, text: said[i] ?? "" })).filter(({ text }) => text !== "*" && text !== "?");
  if (given.length === 0) return said.length === 6 ? "each second" : "each minute";
  const words = given.map(({ field, text }) => `${field} ${text}`).join(", ");
  const days = given.filter(({ field, text }) => field.startsWith("day") && !/^[*?]/.test(text));
  return days.length === 2 ? `${words}; one of the two days is enough` : words;
}

const misfires = {
  fire_once: "the latest of them begins, and the others are skipped",
  fire_all: "all of them begin, one after another, the latest 1,000 at most",
  skip: "all of them are skipped",
};
const gaps = {
  after: "one occurrence right after the gap replaces it",
  skip: "nothing replaces it",
};
const overlaps = {
  first: "the first counts",
  second: "the second counts",
  both: "both count",
};

/** Fact is a field of a rule: its name in the API, and what it says. */
type Fact = [name: string, words: string];

/** factsOf says all that a rule says, and what holds where it says nothing. created is when its series was created. */
export function factsOf(r: Recurrence, created: string): Fact[] {
  const all: (Fact | false | undefined | "")[] = [
    r.every && ["every", `Every ${duration(r.every)}, however long a delivery takes.`],
    r.every && ["anchor", anchorWords(r, created)],
    r.cron && ["cron", `${r.cron} – ${cronWords(r.cron)}`],
    r.timezone && ["timezone", `By the clocks of ${r.timezone}.`],
    r.start && ["start", `No occurrence lies before ${local(r.start)}.`],
    ["end", r.end ? `No occurrence lies after ${local(r.end)}.` : "It has no end."],
    r.maxRuns !== undefined && [
      "maxRuns",
      `It ends after ${r.maxRuns} occurrences. Skipped ones count, but not those that a pause or a change of the rule skips.`,
    ],
    [
      "jitter",
      r.jitter
        ? `Each occurrence begins later by a part of ${duration(r.jitter)}, which differs from one to the next, and before the next one.`
        : "None: each occurrence begins at its time.",
    ],
    [
      "misfire",
      `Of occurrences that could not begin within ${duration(r.misfireAfter ?? "PT1M")} after their time, ${misfires[r.misfire ?? "fire_once"]}.`,
    ],
    r.cron && [
      "gap",
      `If a clock is set forward over a local time, ${r.gap ? gaps[r.gap] : `${gaps.after}; ${gaps.skip} if the rule names all 24 hours`}.`,
    ],
    r.cron && [
      "overlap",
      `If a clock is set back and a local time comes twice, ${r.overlap ? overlaps[r.overlap] : `${overlaps.first}; ${overlaps.both} if the rule names all 24 hours`}.`,
    ],
  ];
  return all.filter((fact): fact is Fact => Boolean(fact));
}

function anchorWords(r: Recurrence, created: string): string {
  if (r.anchor) return `Counted from ${local(r.anchor)}.`;
  if (r.start) return `Counted from its start, ${local(r.start)}.`;
  return `Counted from when the series was created, ${local(created)}.`;
}
