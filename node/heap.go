package node

// HeapFloor returns 64 MiB that a process which runs a node keeps alive and never touches, so that they take none of
// the machine's memory. Go collects garbage when the heap has doubled, and by then stops all requests for milliseconds.
// A node keeps few megabytes, and would collect every second; with these it first makes 64 MiB of garbage.
func HeapFloor() []byte { return make([]byte, 64<<20) }
