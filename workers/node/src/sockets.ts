/**
 * Calls through `node:http`, which Deno and Bun have as well: with given certificates, which `fetch` cannot trust; and
 * by connections that stay open, where `fetch` closes one that was idle for four seconds. Claims hang on connections.
 */

import * as http from "node:http";
import * as https from "node:https";

import type { Send } from "./connection.ts";

/** `ca`: who signed the servers' certificates, in PEM. `onDisconnect`: a connection by which polls came has closed. */
export function socketSender(ca: string | undefined, onDisconnect: () => void): Send {
  const shared = { keepAlive: true, ...(ca === undefined ? {} : { ca }) };
  const agents = new Map(
    [true, false].map((isPoll) => {
      const options = isPoll ? { ...shared, maxSockets: 1 } : shared; // so that all claims hang on one connection
      return [isPoll, { "http:": new http.Agent(options), "https:": new https.Agent(options) }];
    }),
  );
  const watched = new WeakSet<object>();
  return (url, { method, headers, body, signal, ending, onAnswer, isPoll }) =>
    new Promise((resolve, reject) => {
      const isSecure = url.startsWith("https:");
      const agent = agents.get(isPoll)?.[isSecure ? "https:" : "http:"];
      const sent = (isSecure ? https : http).request(url, { agent, method, headers, signal }, (answer) => {
        onAnswer();
        const parts: Buffer[] = [];
        answer.on("data", (part: Buffer) => parts.push(part));
        answer.on("end", () => resolve({ status: answer.statusCode ?? 0, text: Buffer.concat(parts).toString() }));
        answer.on("error", reject);
        answer.on("close", () => reject(new Error("the connection broke within an answer")));
      });
      if (isPoll) {
        sent.on("socket", (socket) => {
          if (!watched.has(socket)) socket.on("close", onDisconnect);
          watched.add(socket);
        });
      }
      // half closed: a server that waits for jobs closes its half, and an answer that has left still arrives
      ending?.addEventListener("abort", () => sent.socket?.end(), { once: true });
      sent.on("error", reject);
      sent.end(body ?? undefined);
    });
}
