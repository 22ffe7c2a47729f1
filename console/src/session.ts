export type Range = { key: string; end: string; read: boolean; write: boolean };
export type Session = {
  cluster: string; member: string; name: string; version: string; auth: boolean; secure: boolean; user: string; certificate?: boolean; root: boolean; expired?: boolean; ranges: Range[]; endpoints?: string;
};
