// Package membership tells each node by gossip which other nodes are alive, and carries
// small messages between nodes. All it knows about buckets is their numbers.
//
// Its answers are hints. Two nodes may disagree for a while, and a node that is declared
// gone may still be at work: the fence, not the gossip, decides who may publish. The
// package is built to give good hints:
//
//   - A crashed node is declared lost after about three seconds on a quiet network
//     (TestCrash measures it), and a node that leaves is known to be gone immediately. A
//     loaded machine gets more time, because a false alarm moves buckets to and fro.
//   - After a network partition, both sides find each other again. The library forgets a
//     node that has been gone for half a minute and never tries it again; this package
//     tries the seeds and the addresses of lost nodes every few seconds
//     (TestPartitionHeals).
//   - Clusters never merge: packets carry the cluster's label, and those with another
//     label or key are ignored (TestForeignClusterNeverMerges, TestWrongKeyNeverMerges).
//     [Membership.Problem] says in a sentence why a node finds no others.
//   - A second node of the same name is refused at its start if the first one answers. A
//     node that returns at another address after a crash gets its name back as soon as
//     the others notice that the old address is gone.
//
// Nudges, broadcasts and questions are packets that may be lost, duplicated or late, and an
// answer may not come. Correctness must not depend on them.
package membership
