export default function ConnectionsPage() { return <h1>Connections</h1>; }
