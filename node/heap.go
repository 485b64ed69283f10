package node

// HeapBallast returns 64 MiB that a process which runs a node keeps alive and never touches, so that they take none of
// the machine's memory. Go collects garbage when the heap has doubled, and each collection delays requests by
// milliseconds. A node's heap is some megabytes: without the ballast Go collects every second.
func HeapBallast() []byte { return make([]byte, 64<<20) }
