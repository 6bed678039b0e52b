package retrieve

import (
	"context"
	"errors"
	"net"
	"net/http"

	"searchloop/indexer"
	"searchloop/indexer/encoder/served"
	"searchloop/indexer/flat/gpu"
	"searchloop/internal/fail"
	"searchloop/internal/job"
)

// RunOptions are the arguments of Run. Encoder and Passages are empty unless they
// moved since the index was built.
type RunOptions struct {
	Index, Addr       string
	Encoder, Passages string
	EncoderServer     served.Options // how the encoder is asked, if it is in a server
	Words             string         // folder for the index of words; "": vectors alone
	Server            Options
	Device            gpu.Flags
}

// Run serves the index until the job is told to stop; requests in flight are
// answered first.
func Run(ctx context.Context, r *job.Run, o RunOptions) error {
	o.EncoderServer.Log = r.Log
	where := []indexer.Option{indexer.WithServer(o.EncoderServer), indexer.WithDevice(o.Device.Options(r.Log))}
	if o.Encoder != "" {
		where = append(where, indexer.WithEncoder(o.Encoder))
	}
	if o.Passages != "" {
		where = append(where, indexer.WithPassages(o.Passages))
	}
	x, err := indexer.Open(ctx, o.Index, where...)
	if err != nil {
		return err
	}
	var served Searcher = x
	if o.Words == "" {
		defer x.Close()
	} else {
		h, err := x.WithWords(ctx, o.Words)
		if err != nil {
			return errors.Join(err, x.Close())
		}
		defer h.Close()
		served = h
	}
	l, err := net.Listen("tcp", o.Addr)
	if err != nil {
		return fail.WithHint(fail.Wrap(fail.Usage, "listen", o.Addr, err), "choose another address with --addr")
	}
	o.Server.Log = r.Log
	d := x.Describe()
	r.Log.Info("serving", "url", "http://"+l.Addr().String()+"/retrieve", "rows", d.Rows, "shards", len(d.Shards), "dim", d.Space.Dim, "encoder", d.Space.EncoderName())
	return Serve(ctx, r.Stopping(), l, New(served, o.Server))
}

// Serve answers on l until stop is closed, then lets requests in flight end; when
// ctx is cancelled they are cut off. A stop is no error.
func Serve(ctx context.Context, stop <-chan struct{}, l net.Listener, s *Server) error {
	h := serverOf(s, s.log)
	done := make(chan error, 1)
	go func() { done <- h.Serve(l) }()
	select {
	case err := <-done:
		return fail.Wrap(fail.Service, "serve", l.Addr().String(), err)
	case <-stop:
	case <-ctx.Done():
	}
	err := h.Shutdown(ctx)
	if err != nil {
		h.Close()
	}
	if served := <-done; !errors.Is(served, http.ErrServerClosed) {
		return fail.Wrap(fail.Service, "serve", l.Addr().String(), served)
	}
	return fail.Wrap(fail.Interrupted, "stop serving", l.Addr().String(), err)
}
