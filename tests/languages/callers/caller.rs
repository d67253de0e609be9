// The scenario of tests/languages/scenario.py, through Apache's library for Rust, which has no TLS.
// caller HOST PORT framed|buffered binary|compact - - - TOKEN|- QUEUE PASSWORD
use std::collections::BTreeMap;
use std::io::{stdin, Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use thrift::protocol::{
    TBinaryInputProtocol, TBinaryOutputProtocol, TCompactInputProtocol, TCompactOutputProtocol, TInputProtocol,
    TOutputProtocol,
};
use thrift::transport::{
    TBufferedReadTransport, TBufferedWriteTransport, TFramedReadTransport, TFramedWriteTransport, TIoChannel,
    TTcpChannel,
};

#[allow(clippy::all, warnings)]
mod pinlater;
use pinlater::*;

type Client = PinLaterSyncClient<Box<dyn TInputProtocol>, Box<dyn TOutputProtocol>>;

struct Caller {
    given: Vec<String>,
    queue: String,
    context: RequestContext,
    client: Client,
}

fn open(given: &[String]) -> thrift::Result<Client> {
    let stream = TcpStream::connect(format!("{}:{}", given[1], given[2])).map_err(thrift::Error::from)?;
    stream.set_read_timeout(Some(Duration::from_secs(30))).map_err(thrift::Error::from)?;
    let (reader, writer) = TTcpChannel::with_stream(stream).split()?;
    let (input, output): (Box<dyn Read + Send>, Box<dyn Write + Send>) = if given[3] == "framed" {
        (Box::new(TFramedReadTransport::new(reader)), Box::new(TFramedWriteTransport::new(writer)))
    } else {
        (Box::new(TBufferedReadTransport::new(reader)), Box::new(TBufferedWriteTransport::new(writer)))
    };
    Ok(if given[4] == "compact" {
        Client::new(Box::new(TCompactInputProtocol::new(input)), Box::new(TCompactOutputProtocol::new(output)))
    } else {
        Client::new(Box::new(TBinaryInputProtocol::new(input, true)), Box::new(TBinaryOutputProtocol::new(output, true)))
    })
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{:02x}", byte)).collect()
}

/// With None for all that is not given: a default of the interface file is sent by `Default`, not by a missing field.
fn job_of(body: &[u8]) -> PinLaterJob {
    PinLaterJob::new(body.to_vec(), None, None, None, None, None, None, None, None, None, None, None, None, None, None, None)
}

fn ack_of(descriptor: &str, taken: &PinLaterDequeueResponse) -> PinLaterJobAckInfo {
    let claim = taken.job_metadata.as_ref().unwrap()[descriptor].claim_descriptor.clone();
    PinLaterJobAckInfo::new(descriptor.to_string(), None, None, claim, None, None, None, None)
}

impl Caller {
    fn enqueue(&mut self, into: &str, job: PinLaterJob) -> thrift::Result<PinLaterEnqueueResponse> {
        self.client.enqueue_jobs(self.context.clone(), PinLaterEnqueueRequest::new(into.to_string(), vec![job]))
    }

    fn stored(&mut self, job: PinLaterJob) -> thrift::Result<String> {
        let queue = self.queue.clone();
        Ok(self.enqueue(&queue, job)?.job_descriptors[0].clone())
    }

    fn lookup(&mut self, descriptor: &str) -> thrift::Result<PinLaterJobInfo> {
        let asked = PinLaterLookupJobRequest::new(vec![descriptor.to_string()], true, None, None, None, true, None);
        Ok(self.client.lookup_jobs(self.context.clone(), asked)?[descriptor].clone())
    }

    fn count(&mut self, future: bool) -> thrift::Result<i32> {
        let pending = PinLaterJobState::PENDING;
        let asked = PinLaterGetJobCountRequest::new(self.queue.clone(), pending, None, future, None, None);
        self.client.get_job_count(self.context.clone(), asked)
    }

    fn dequeue(&mut self, limit: i32) -> thrift::Result<PinLaterDequeueResponse> {
        let asked = PinLaterDequeueRequest::new(
            self.queue.clone(), limit, None, None, None, 1000, 600_000, None, None, None, None,
        );
        self.client.dequeue_jobs(self.context.clone(), asked)
    }

    fn is_in_queues(&mut self) -> thrift::Result<i32> {
        Ok(self.client.get_queue_names(self.context.clone())?.contains(&self.queue) as i32)
    }

    fn ack(
        &mut self, step: &str, succeeded: Vec<PinLaterJobAckInfo>, failed: Vec<PinLaterJobAckInfo>,
    ) -> thrift::Result<()> {
        let asked = PinLaterJobAckRequest::new(self.queue.clone(), succeeded, failed);
        let outcomes = self.client.ack_jobs(self.context.clone(), asked)?.outcomes;
        let words: Vec<String> = outcomes.iter().map(|each| i32::from(each).to_string()).collect();
        println!("{} {}", step, words.join(" "));
        Ok(())
    }

    fn pause(&mut self, step: &str) -> thrift::Result<()> {
        println!("{}?", step);
        stdin().read_line(&mut String::new()).unwrap();
        match self.count(true) {
            Ok(jobs) => println!("{} kept {}", step, jobs),
            Err(thrift::Error::Transport(_)) => {
                self.client = open(&self.given)?;
                println!("{} broken {}", step, self.count(true)?);
            }
            Err(error) => return Err(error),
        }
        Ok(())
    }

    fn flow(&mut self) -> thrift::Result<()> {
        let stage = |name: &str, parent: Option<String>| {
            let steps = format!("{}_steps", self.queue);
            FlowStage::new(
                name.to_string(), None, steps, parent, None, None, None, None, None, None, None, None, None,
            )
        };
        let stages = vec![stage("add", None), stage("total", Some("add".to_string()))];
        let metadata = BTreeMap::from([("month".to_string(), "11".to_string())]);
        let asked = CreateFlowRequest::new("sums".to_string(), stages, None, metadata, None, None, None, None, None);
        let made = self.client.create_flow(self.context.clone(), asked)?;
        let status = self.client.get_flow(self.context.clone(), GetFlowRequest::new(made.id, None))?;
        print!("flow {} {}", made.is_new as i32, status.metadata.unwrap()["month"]);
        for each in status.stages {
            print!(" {}<{}", each.stage.name, each.stage.parent_stage.unwrap_or_default());
        }
        println!();
        Ok(())
    }

    fn run(&mut self) -> thrift::Result<()> {
        let queue = self.queue.clone();
        self.client.create_queue(self.context.clone(), queue.clone())?;
        println!("create");
        let plain = self.stored(job_of(b"plain"))?;
        println!("plain");
        let mut named = job_of(b"keyed");
        named.dedupe_key = Some("key".to_string());
        named.priority = Some(2);
        let keyed = self.stored(named.clone())?;
        let again = self.enqueue(&queue, named)?;
        let outcome = i32::from(&again.outcomes.unwrap()[0]);
        println!("keyed {} {}", outcome, (again.job_descriptors[0] == keyed) as i32);
        let mut of_group = job_of(&(0..=255).collect::<Vec<u8>>());
        of_group.priority = Some(3);
        of_group.num_attempts_allowed = Some(7);
        of_group.custom_status = Some("grüße 日本 🚀".to_string());
        of_group.group = Some("tenant-é".to_string());
        of_group.tags = Some(vec!["red".to_string(), "grün".to_string()]);
        let grouped = self.stored(of_group)?;
        let info = self.lookup(&grouped)?;
        let tags = info.tags.unwrap().join(",");
        println!("group {} {} {} {}", info.group.unwrap(), tags, info.custom_status, info.attempts_allowed);
        let mut later = job_of(b"later");
        later.run_after_timestamp_millis = Some(4_000_000_000_123);
        let delayed = self.stored(later)?;
        println!("delayed {}", self.lookup(&delayed)?.run_after_timestamp_millis.unwrap());
        println!("count {} {}", self.count(false)?, self.count(true)?);
        println!("names {}", self.is_in_queues()?);
        let taken = self.dequeue(10)?;
        for each in [&plain, &keyed, &grouped] {
            let metadata = &taken.job_metadata.as_ref().unwrap()[each];
            let body = &taken.jobs.as_ref().unwrap()[each];
            println!("dequeued {} {} {}", metadata.priority.unwrap(), metadata.attempts_allowed.unwrap(), hex(body));
        }
        let mut good = ack_of(&plain, &taken);
        let (claim, half) = (good.claim_descriptor.clone(), "half".to_string());
        let point =
            PinLaterCheckpointJobRequest::new(plain.clone(), None, None, None, None, half, claim, vec![0u8, 255]);
        let points = PinLaterCheckpointJobsRequest::new(queue.clone(), vec![point], None);
        self.client.checkpoint_jobs(self.context.clone(), points)?;
        let info = self.lookup(&plain)?;
        println!("checkpoint {} {} {}", i32::from(&info.job_state), hex(&info.body.unwrap()), info.custom_status);
        good.result = Some(vec![0, 255, 128]);
        good.progress = Some(JobProgress::new(thrift::OrderedFloat::from(0.5), None, None));
        let (mut bad, mut slow) = (ack_of(&keyed, &taken), ack_of(&grouped, &taken));
        bad.permanent = Some(true);
        slow.retry_delay_millis = Some(3_600_000);
        self.ack("ack", vec![good.clone()], vec![bad, slow])?;
        self.ack("stale", vec![good], vec![])?;
        let info = self.lookup(&plain)?;
        let fraction = info.progress.unwrap().fraction.unwrap();
        println!("result {} {} {}", i32::from(&info.job_state), hex(&info.result.unwrap()), fraction);
        let succeeded =
            PinLaterScanJobsRequest::new(queue.clone(), PinLaterJobState::SUCCEEDED, None, None, None, None, None);
        let page = self.client.scan_jobs(self.context.clone(), succeeded)?;
        let first = (page.scanned_jobs[0].job_descriptor == plain) as i32;
        println!("scan {} {} {}", page.scanned_jobs.len(), first, page.continuation.unwrap());
        match self.enqueue("nowhere", job_of(b"lost")) {
            Err(thrift::Error::User(error)) => {
                let error = error.downcast::<PinLaterException>().unwrap();
                let retryable = error.retryable.unwrap() as i32;
                println!("error {} {} {}", i32::from(&error.error_code), error.reason.unwrap(), retryable);
            }
            other => drop(other?),
        }
        self.flow()?;
        let cancel = CancelJobsRequest::new(queue.clone(), vec![delayed.clone()], None, None);
        let outcomes = self.client.cancel_jobs(self.context.clone(), cancel)?.outcomes;
        println!("cancel {}", i32::from(&outcomes[&delayed]));
        let large: Vec<u8> = (0..100_000).map(|index| (index % 251) as u8).collect();
        let largest = self.stored(job_of(&large))?;
        let came = self.dequeue(1)?;
        let body = &came.jobs.as_ref().unwrap()[&largest];
        println!("large {} {}", body.len(), (*body == large) as i32);
        self.ack("ended", vec![ack_of(&largest, &came)], vec![])?;
        println!("identity {}", self.client.get_access(self.context.clone())?.identity);
        self.pause("idle")?;
        self.pause("restart")?;
        let password = self.given[10].clone();
        self.client.delete_queue(self.context.clone(), queue, password)?;
        println!("delete {}", self.is_in_queues()?);
        Ok(())
    }
}

fn main() -> thrift::Result<()> {
    let given: Vec<String> = std::env::args().collect();
    let token = Some(given[8].clone()).filter(|token| token != "-");
    let context = RequestContext::new("caller".to_string(), None, token, None, None, None, None, None);
    let client = open(&given)?;
    Caller { queue: given[9].clone(), given, context, client }.run()
}
