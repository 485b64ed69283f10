package store

// PageBytesMax is how many bytes of payloads and headers a page may have, besides its last message's: List,
// ReadInbox and ReadPlaces end with the message that reaches it. A page lies in memory, and so does the answer
// that is made of it; without a bound in bytes either would be a thousand times as large as the largest payload.
const PageBytesMax = 4 << 20
