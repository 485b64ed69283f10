package node

// files says how many open files the parts of a node may have. A part that takes none from
// another cannot stop it: clients that connect, or receivers that hang, leave the store the
// files that it needs.
type files struct{ store, http, webhooks int }

// filesMin is the lowest limit of open files with which a node starts, filesDefault the limit
// where the system tells none.
const (
	filesMin     = 256
	filesDefault = 1 << 16
)

// What each part takes at most, however high the limit is.
const (
	storeFilesMax   = 1000
	webhookFilesMax = 1000
	httpFilesMax    = 16_384
)

// divide divides the files that a process may open. A quarter is for the store's tables, an
// eighth for webhooks, and a quarter is nobody's: for the store's logs, brokers, other nodes
// and the rest.
func divide(limit uint64) (files, error) {
	if limit < filesMin {
		return files{}, invalid("the process may open %d files: allow it at least %d (ulimit -n)", limit, filesMin)
	}
	of := func(share uint64, most int) int { return int(min(share, uint64(most))) }
	return files{
		store: of(limit/4, storeFilesMax), webhooks: of(limit/8, webhookFilesMax), http: of(limit*3/8, httpFilesMax),
	}, nil
}
