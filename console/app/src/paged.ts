// Lists that come in pages, live.
import { useMemo } from "preact/hooks";
import { type Live, useLive } from "./poll";

export interface Paged<T> extends Live<T[]> {
  /** missing are the nodes that did not answer. */
  missing: string[];
  /** complete: there is no further page. */
  complete: boolean;
  /** stopped: the last pages were empty though more follow, which somebody must ask for. */
  stopped: boolean;
  /** more reads one page more. */
  more(): void;
}

interface Page<T> {
  rows: T[];
  next?: string;
  missing?: string[];
}

/** emptyMax is how many empty pages are read in a row before somebody is asked: each may take the node a long look. */
export const emptyMax = 5;

/**
 * usePaged reads pages of a list, one request at a time. It goes on by itself until it has all or, else, a page with a
 * row, as a page may be empty though more follow. Then it reads the pages that it has again and again, one every so
 * many milliseconds.
 */
export function usePaged<T>(
  read: (cursor: string | undefined, signal: AbortSignal) => Promise<Page<T>>,
  id: (row: T) => string,
  everyMs: number,
  on: unknown[],
  all = false,
): Paged<T> {
  const kept = useMemo(() => ({ pages: [] as Page<T>[], turn: 0, empty: 0 }), on);
  const live = useLive(
    async (signal) => {
      const turn = kept.turn;
      kept.turn = 0; // a node of another version refuses the cursor
      const page = await read(kept.pages[turn - 1]?.next, signal);
      kept.pages[turn] = page;
      if (!page.next) kept.pages.length = turn + 1;
      // a row that moved between two reads is in two pages for a while
      const rows = new Map(kept.pages.flatMap((p) => p.rows).map((row) => [id(row), row]));
      const isLast = turn + 1 === kept.pages.length;
      if (isLast) kept.empty = page.rows.length === 0 ? kept.empty + 1 : 0;
      const goesOn = !isLast || (page.next && (all || (kept.empty > 0 && kept.empty < emptyMax)));
      kept.turn = goesOn ? turn + 1 : 0;
      return [...rows.values()];
    },
    everyMs,
    on,
  );
  const complete = kept.pages.length > 0 && !kept.pages.at(-1)!.next;
  return {
    value: live.value,
    fault: live.fault,
    missing: [...new Set(kept.pages.flatMap((page) => page.missing ?? []))],
    complete,
    stopped: !complete && kept.empty >= emptyMax,
    again() {
      kept.turn = 0;
      live.again();
    },
    more() {
      if (complete || kept.pages.length === 0) return;
      kept.turn = kept.pages.length;
      kept.empty = 0;
      live.again();
    },
  };
}
