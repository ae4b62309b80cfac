// Requests to /v1 get the key here, so that the page does not have it. A real site does this in its backend, after its login.

import react from '@vitejs/plugin-react';

const target = process.env.HOLDPOINT_URL ?? 'http://127.0.0.1:8787';
const headers = { authorization: `Bearer ${process.env.HOLDPOINT_KEY}` };

export default {
  plugins: [react()],
  server: { port: Number(process.env.PORT ?? 5173), strictPort: true, proxy: { '/v1': { target, headers } } },
};
