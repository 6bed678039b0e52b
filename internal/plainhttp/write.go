package plainhttp

import (
	"bufio"
	"io"
	"net/http"
	"strconv"
	"strings"

	"golang.org/x/net/http/httpguts"
)

// write sends a request. One whose length is known goes out in one piece with its head:
// http.Request.Write sends the head of a body that it does not know by itself, and
// looks longer at all of them.
func write(w *bufio.Writer, req *http.Request) error {
	if !simple(req) {
		return req.Write(w)
	}
	start(w, req)
	if req.Body != nil {
		w.WriteString("Content-Length: ")
		w.Write(strconv.AppendInt(w.AvailableBuffer(), req.ContentLength, 10))
		w.WriteString("\r\n")
	}
	if err := req.Header.Write(w); err != nil {
		return err
	}
	_, err := w.WriteString("\r\n")
	if err != nil || req.Body == nil {
		return err
	}
	n, err := io.Copy(w, io.LimitReader(req.Body, req.ContentLength))
	if err == nil && n < req.ContentLength {
		err = io.ErrUnexpectedEOF
	}
	return err
}

// start writes what a request begins with.
func start(w *bufio.Writer, req *http.Request) {
	method := req.Method
	if method == "" {
		method = http.MethodGet
	}
	w.WriteString(method)
	w.WriteByte(' ')
	w.WriteString(req.URL.RequestURI())
	w.WriteString(" HTTP/1.1\r\nHost: ")
	w.WriteString(req.URL.Host)
	w.WriteString("\r\n")
	if req.Header.Get("User-Agent") == "" {
		w.WriteString("User-Agent: Go-http-client/1.1\r\n")
	}
}

// simple says whether a request is one of a known length to a host of a plain name,
// with no header that changes how it is sent.
func simple(req *http.Request) bool {
	switch req.Method {
	case http.MethodPost:
		if req.Body == nil || req.ContentLength <= 0 {
			return false
		}
	case http.MethodGet, "":
		if req.Body != nil || req.ContentLength != 0 {
			return false
		}
	default:
		return false
	}
	if req.Host != "" && req.Host != req.URL.Host || len(req.TransferEncoding) > 0 || len(req.Trailer) > 0 || req.Close {
		return false
	}
	if strings.ContainsFunc(req.URL.Host, func(r rune) bool {
		return !(r >= 'a' && r <= 'z' || r >= '0' && r <= '9' || r == '.' || r == ':' || r == '-')
	}) {
		return false
	}
	for name := range req.Header {
		switch name {
		case "Host", "Content-Length", "Transfer-Encoding", "Trailer", "Connection":
			return false
		}
	}
	return true
}

// valid says whether names and values of headers can be sent.
func valid(h http.Header) bool {
	for name, values := range h {
		if !httpguts.ValidHeaderFieldName(name) {
			return false
		}
		for _, v := range values {
			if !httpguts.ValidHeaderFieldValue(v) {
				return false
			}
		}
	}
	return true
}
