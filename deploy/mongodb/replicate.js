// Makes a replica set of each server of compose.sharded.yaml, and waits until each
// takes writes. It may be run again.
for (const name of ["config", "shard-1", "shard-2"]) {
  const admin = new Mongo(`mongodb://${name}:27017/?directConnection=true`).getDB("admin");
  const set = { _id: name, members: [{ _id: 0, host: `${name}:27017` }] };
  if (name === "config") set.configsvr = true;
  try {
    admin.runCommand({ replSetInitiate: set });
  } catch (e) {
    if (e.codeName !== "AlreadyInitialized") throw e;
  }
  while (!admin.runCommand({ hello: 1 }).isWritablePrimary) sleep(200);
}
