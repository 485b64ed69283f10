// Adds the shards and shards what Postdate needs sharded. Run it against a mongos,
// once, before the first node starts; it may be run again. "postdate store init"
// shards the collections as well, where this has not been done.
for (const name of ["shard-1", "shard-2"]) sh.addShard(`${name}/${name}:27017`);

// Messages lie together by bucket, then by time: a bucket's owner asks one shard.
sh.shardCollection("postdate.messages", { bucket: "hashed", executionTime: 1, scheduleId: 1 });

// A hashed key cannot be unique across shards, so ids are registered in a collection
// that is sharded by the id itself.
sh.shardCollection("postdate.registry", { _id: "hashed" });
