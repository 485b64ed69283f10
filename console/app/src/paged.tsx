// Lists that come in pages, live.
import { useMemo } from "preact/hooks";
import { local } from "./format";
import { type Live, useLive } from "./poll";

export interface Paged<T> extends Live<T[]> {
  /** missing are the nodes that did not answer. */
  missing: string[];
  /** complete: there is no further page. */
  complete: boolean;
  /** looking: rows that are not there yet are being read. */
  looking: boolean;
  /** stopped: the last pages were empty though more follow, or no page is read again. Somebody must ask for more. */
  stopped: boolean;
  /** searchedUntil is the due time that the list has come to. */
  searchedUntil?: string;
  /** more reads until there are more rows, for a few pages. */
  more(): void;
}

interface Options<T> {
  id(row: T): string;
  everyMs: number;
  /** on is what the list depends on: it begins anew when that changes. */
  on: unknown[];
  /** all: it reads to the end by itself. */
  all?: boolean;
}

interface Page<T> {
  rows: T[];
  next?: string;
  missing?: string[];
  searchedUntil?: string;
}

/** emptyMax is how many empty pages are read in a row before somebody is asked: each may take the node a long look. */
const emptyMax = 5;

/**
 * usePaged reads pages of a list, one request at a time. It goes on by itself until it has a page with a row, as a page
 * may be empty though more follow. Then it reads the pages that it has again and again, one every so many milliseconds;
 * 0: they stay as they are.
 */
export function usePaged<T>(
  read: (cursor: string | undefined, signal: AbortSignal) => Promise<Page<T>>,
  { id, everyMs, on, all }: Options<T>,
): Paged<T> {
  const kept = useMemo(() => ({ pages: [] as Page<T>[], rows: new Map<string, T>(), turn: 0, empty: 0, looking: true, wanted: false }), on);
  /** readNext reads the page whose turn it is, and says which is next. */
  const readNext = async (signal: AbortSignal) => {
    const turn = kept.wanted ? kept.pages.length : kept.turn;
    kept.wanted = false;
    kept.turn = 0; // a node of another version refuses the cursor
    const page = await read(kept.pages[turn - 1]?.next, signal);
    const isNew = turn === kept.pages.length;
    kept.pages[turn] = page;
    if (!page.next) kept.pages.length = turn + 1;
    if (!isNew) kept.rows = new Map();
    // a row that moved between two reads is in two pages for a while
    for (const { rows } of isNew ? [page] : kept.pages) for (const row of rows) kept.rows.set(id(row), row);
    const isLast = turn + 1 === kept.pages.length;
    if (isLast) kept.empty = page.rows.length === 0 ? kept.empty + 1 : 0;
    const searches = isLast && Boolean(page.next) && kept.empty > 0 && kept.empty < emptyMax;
    kept.turn = !isLast || searches || (all && page.next) ? turn + 1 : 0;
    return searches;
  };
  const live = useLive(
    async (signal) => {
      try {
        while (await readNext(signal));
      } finally {
        if (!signal.aborted) kept.looking = false;
      }
      return [...kept.rows.values()];
    },
    everyMs,
    on,
  );
  const last = kept.pages.at(-1);
  const complete = last !== undefined && !last.next;
  return {
    value: live.value,
    fault: live.fault,
    missing: [...new Set(kept.pages.flatMap((page) => page.missing ?? []))],
    complete,
    looking: kept.looking,
    stopped: !complete && !kept.looking && (kept.empty >= emptyMax || (everyMs === 0 && live.fault !== undefined)),
    searchedUntil: last?.searchedUntil,
    again() {
      kept.turn = 0;
      live.again();
    },
    more() {
      if (complete || kept.looking) return;
      kept.looking = true;
      kept.wanted = true; // a read that is under way sets the turn
      kept.empty = 0;
      live.again();
    },
  };
}

/** Further says how far a list has looked, if it stopped, and goes on with it. */
export function Further({ list }: { list: Paged<unknown> }) {
  if (!list.stopped) return null;
  return (
    <>
      {list.searchedUntil && <span>Searched what is due until {local(list.searchedUntil)}.</span>}
      <button class="outline" onClick={list.more}>Search further</button>
    </>
  );
}
