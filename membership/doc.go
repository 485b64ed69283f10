// Package membership tells each node who else is alive, by gossip, and carries
// small messages between nodes. It knows nothing of buckets but their numbers.
//
// What it says is a hint. Two nodes may believe different things for a while, and
// a node that is called gone may still be at work: the fence, not the gossip,
// decides who may publish. It is built so that hints are good:
//
//   - A node that crashed is called gone after about three seconds on a quiet
//     network (TestCrash measures it), one that leaves is called gone at once. A
//     loaded machine gets more time, for a false alarm moves buckets to and fro.
//   - After a partition both sides find each other again. The library forgets who
//     has been gone for half a minute and never asks again; here seeds, and the
//     addresses of nodes that were lost, are tried every few seconds
//     (TestPartitionHeals).
//   - Clusters never merge: packets carry the cluster's label, and nothing with
//     another label or under another key is heard (TestForeignClusterNeverMerges,
//     TestWrongKeyNeverMerges). Why a node finds nobody, it says in a sentence:
//     [Membership.Problem].
//   - A second node of the same name is refused at its start, once the first one
//     is seen to answer. A node that came back under another address after a crash
//     gets its name back as soon as the others miss the old one.
//
// Nudges and broadcasts are packets that may be lost, doubled or late. Nothing
// that matters may rest on one.
package membership
