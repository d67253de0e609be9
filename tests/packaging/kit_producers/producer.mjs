// node producer.mjs URL: enqueues one job, and prints its descriptor
import { Producer } from "pinlater";

const producer = new Producer({ servers: process.argv[2] });
const { descriptor } = await producer.enqueue("first", { name: "greet", kwargs: { to: "ada" } });
console.log(descriptor);
