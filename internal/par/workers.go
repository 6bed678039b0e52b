package par

import "sync/atomic"

// spins is how often an idle worker, or a caller waiting for the last range,
// looks again before it sleeps: some tens of microseconds. Waking a sleeping
// goroutine costs more than most small loops take, and loops come in bursts.
const spins = 4000

// pool holds the workers. They are started when first needed and stay.
var pool = workerPool{work: make(chan *loop, 1024)}

type workerPool struct {
	work    chan *loop
	started atomic.Int32 // changed only under region
}

// call offers l to count workers. A full channel means that they are all far
// behind; then the caller does the loop with whoever comes.
func (p *workerPool) call(l *loop, count int) {
	for int(p.started.Load()) < count {
		p.started.Add(1)
		go p.serve()
	}
	for range count {
		l.refs.Add(1)
		select {
		case p.work <- l:
		default:
			l.refs.Add(-1)
			return
		}
	}
}

func (p *workerPool) serve() {
	// Only runtime.Goexit in a loop body (a test's FailNow) ends a worker.
	defer func() { go p.serve() }()
	for {
		l := p.next()
		l.work()
		l.release()
	}
}

func (p *workerPool) next() *loop {
	for range spins {
		select {
		case l := <-p.work:
			return l
		default:
		}
	}
	return <-p.work
}

// wait returns when the last range is done.
func (l *loop) wait() {
	for range spins {
		select {
		case <-l.done:
			return
		default:
		}
	}
	<-l.done
}
