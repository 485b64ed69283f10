package poller

import "container/list"

// rotation is a set whose members take turns: a member that was looked at, or that is new,
// comes after all others. The zero value is empty.
type rotation[T comparable] struct {
	queue list.List
	at    map[T]*list.Element
}

func (r *rotation[T]) len() int { return r.queue.Len() }

func (r *rotation[T]) has(x T) bool { return r.at[x] != nil }

func (r *rotation[T]) add(x T) {
	if r.has(x) {
		return
	}
	if r.at == nil {
		r.at = map[T]*list.Element{}
	}
	r.at[x] = r.queue.PushBack(x)
}

func (r *rotation[T]) remove(x T) {
	if e := r.at[x]; e != nil {
		r.queue.Remove(e)
		delete(r.at, x)
	}
}

// members lists all members, in the order of their turns.
func (r *rotation[T]) members() (all []T) {
	for e := r.queue.Front(); e != nil; e = e.Next() {
		all = append(all, e.Value.(T))
	}
	return all
}

// next is the next member that fits. Each look at a member takes one from looks, and the search
// ends when none is left; but it always looks at one member.
func (r *rotation[T]) next(looks *int, fits func(T) bool) (next T, found bool) {
	for i := range r.len() {
		if i > 0 && *looks <= 0 {
			break
		}
		*looks--
		e := r.queue.Front()
		r.queue.MoveToBack(e)
		if x := e.Value.(T); fits(x) {
			return x, true
		}
	}
	return next, false
}
