// Lists that come in pages, live.
import { useMemo } from "preact/hooks";
import { type Live, useLive } from "./poll";

export interface Paged<T> extends Live<T[]> {
  /** missing are the nodes that did not answer. */
  missing: string[];
  /** complete: there is no further page. */
  complete: boolean;
  /** more reads one page more. */
  more(): void;
}

interface Page<T> {
  rows: T[];
  next?: string;
  missing?: string[];
}

/**
 * usePaged reads pages of a list, one request at a time. It goes on by itself until it has all or, else, a row, as a
 * page may be empty though more follow. Then it reads the pages that it has again and again, one every so many
 * milliseconds.
 */
export function usePaged<T>(
  read: (cursor: string | undefined, signal: AbortSignal) => Promise<Page<T>>,
  id: (row: T) => string,
  everyMs: number,
  on: unknown[],
  all = false,
): Paged<T> {
  const kept = useMemo(() => ({ pages: [] as Page<T>[], turn: 0 }), on);
  const live = useLive(
    async (signal) => {
      const turn = kept.turn;
      kept.turn = 0; // a node of another version refuses the cursor
      const page = await read(kept.pages[turn - 1]?.next, signal);
      kept.pages[turn] = page;
      if (!page.next) kept.pages.length = turn + 1;
      // a row that moved between two reads is in two pages for a while
      const rows = new Map(kept.pages.flatMap((p) => p.rows).map((row) => [id(row), row]));
      kept.turn = turn + 1 < kept.pages.length || ((all || rows.size === 0) && page.next) ? turn + 1 : 0;
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
    again() {
      kept.turn = 0;
      live.again();
    },
    more() {
      if (complete || kept.pages.length === 0) return;
      kept.turn = kept.pages.length;
      live.again();
    },
  };
}
