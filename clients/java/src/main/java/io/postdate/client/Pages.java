package io.postdate.client;

import java.util.Iterator;
import java.util.List;
import java.util.NoSuchElementException;
import java.util.function.Function;

/** Reads items page by page. */
final class Pages<T> implements Iterator<T> {
  /** One page; a next of null: the last one. */
  record Page<T>(List<T> items, String next) {}

  private final Function<String, Page<T>> read;
  private Iterator<T> items;
  private String next;

  Pages(Function<String, Page<T>> read) {
    this.read = read;
    turn(null);
  }

  @Override
  public boolean hasNext() {
    while (!items.hasNext() && next != null) {
      turn(next);
    }
    return items.hasNext();
  }

  @Override
  public T next() {
    if (!hasNext()) {
      throw new NoSuchElementException();
    }
    return items.next();
  }

  private void turn(String cursor) {
    Page<T> page = read.apply(cursor);
    items = page.items().iterator();
    next = page.next();
  }
}
